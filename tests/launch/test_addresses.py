import pytest

from splitserve.errors import ConfigError
from splitserve.launch.addresses import exposure_warning, http_url, unix_address
from splitserve.protocol.address import UnixAddress, is_loopback, parse_address


def test_a_socket_path_can_be_bound() -> None:
    assert parse_address(unix_address("/run/x", "decode-0")) == UnixAddress("/run/x/decode-0.sock")


def test_a_socket_path_that_is_too_long_is_refused_with_the_cure() -> None:
    # 85 + "/decode-0.sock" is one byte too many; bytes count, not characters.
    assert unix_address("/" + "d" * 85, "decode-0")
    for folder in ("/" + "d" * 86, "/" + "ä" * 50):
        with pytest.raises(ConfigError, match="set TMPDIR"):
            unix_address(folder, "decode-0")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_only_loopback_goes_without_a_warning(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback
    assert (exposure_warning(host) is None) == loopback


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("[::1]", "http://[::1]:80"),
        ("example.org", "http://example.org:80"),
    ],
)
def test_the_url_is_one_that_works_here(host: str, url: str) -> None:
    assert http_url(host, 80) == url
