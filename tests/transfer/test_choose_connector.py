"""Which connector a device gets when none was asked for, and what one needs that is missing."""

import sys

import pytest

from splitserve.errors import ConfigError
from splitserve.transfer.registry import CONNECTORS, choose_connector, create_connector


@pytest.mark.parametrize(
    ("device", "name"), [("cpu", "shm"), ("cuda", "cuda_ipc"), ("cuda:3", "cuda_ipc")]
)
def test_the_device_chooses_the_connector(device: str, name: str) -> None:
    assert choose_connector(device) == name
    assert name in CONNECTORS


def test_a_package_that_is_missing_is_named_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "splitserve.transfer.connectors.tcp", None)
    with pytest.raises(ConfigError, match=r"connector tcp needs .*pip install 'splitserve\[engine"):
        create_connector("tcp")
