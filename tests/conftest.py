"""What all tests share: a process that holds all of them, and no more of the machine than it must.

Whatever costs a process a little at its start, or a client, costs a test run minutes.
"""

import gc
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

AUTHORITY = Path(__file__).parent / "protocol" / "tls" / "ca.crt"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What was imported and collected stays to the end. To look it all through for garbage takes
    0.2 s, and each run of a study asks for that."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def lasting_freeze() -> Iterator[None]:
    """A study, at the end of each run, takes it back for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "unfreeze", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_authority() -> Iterator[None]:
    """No test needs the authorities that a machine trusts, and to read them all takes 50 ms: each
    HTTP client's, and each process's that has one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(AUTHORITY))
        yield


@pytest.fixture(scope="session", autouse=True)
def heard_interrupt() -> None:
    """A shell starts what it runs in the background deaf to Ctrl-C, and all that this starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
