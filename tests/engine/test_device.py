"""Devices by name, and their sizes."""

import pytest

from splitserve.engine.device import DEFAULTS, Device, Sizes, parse_device, sizes_on
from splitserve.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "device", "written"),
    [
        ("cpu", Device("cpu"), "cpu"),
        ("cuda", Device("cuda", 0), "cuda:0"),
        ("cuda:0", Device("cuda", 0), "cuda:0"),
        ("cuda:12", Device("cuda", 12), "cuda:12"),
    ],
)
def test_a_device_is_a_kind_and_a_number(text: str, device: Device, written: str) -> None:
    assert parse_device(text) == device
    assert str(device) == written
    assert parse_device(written) == device


@pytest.mark.parametrize("text", ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:0 ", "cpu:0"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is unknown; write cpu, cuda or cuda:N"):
        parse_device(text)


def test_what_is_not_asked_for_is_the_devices_default() -> None:
    assert sizes_on("cpu", None, None, None) == DEFAULTS["cpu"] == Sizes(64, 512, 1 << 30)
    assert sizes_on("cuda", None, None, None) == DEFAULTS["cuda"] == Sizes(256, 8192, None)


def test_what_is_asked_for_stays() -> None:
    assert sizes_on("cuda", 7, None, 5) == Sizes(7, 8192, 5)
    assert sizes_on("cpu", None, 99, None) == Sizes(64, 99, 1 << 30)
