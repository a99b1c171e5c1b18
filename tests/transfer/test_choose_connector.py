"""Which connector a device gets when none was asked for."""

import pytest

from splitserve.transfer.registry import CONNECTORS, choose_connector


@pytest.mark.parametrize(
    ("device", "name"), [("cpu", "shm"), ("cuda", "cuda_ipc"), ("cuda:3", "cuda_ipc")]
)
def test_the_device_chooses_the_connector(device: str, name: str) -> None:
    assert choose_connector(device) == name
    assert name in CONNECTORS
