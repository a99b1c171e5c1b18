"""One NIXL agent with this worker's pool registered: all that Splitserve calls of the package."""

import logging
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import numpy as np

from splitserve.errors import ConfigError, TransferFailed
from splitserve.loading import load
from splitserve.protocol.memory import MemoryRegion
from splitserve.transfer.hosts import has_rdma
from splitserve.transfer.nixl.tables import tables
from splitserve.transfer.posting.pairs import Pairs, Place
from splitserve.transfer.posting.started import Operation

_BACKEND: Final = "UCX"
_SELF: Final = "NIXL_INIT_AGENT"

_PAUSE_US: Final = 100
"""How long NIXL's progress thread sleeps at most when nothing happens; events wake it sooner. The
package's own 0 makes it spin: a core of every worker for nothing (1.5.1: 0.99 of a core idle, with
this 0.015)."""

_BUILDS: Final = ("nixl_cu13", "nixl_cu12")
"""What package nixl chooses from by CUDA's version, for which it imports torch. Host memory needs
no choice, and a worker without a GPU no torch."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Two tables that pair up, known to NIXL. Belongs to the agent that made it."""

    operation: Operation
    local: Any
    remote: Any


class NixlAgent:
    """Used by one thread. Calls are short; none waits for a peer."""

    def __init__(self, region: MemoryRegion) -> None:
        """Raises ConfigError when the package is missing, UCX finds no transport, or the memory
        cannot be registered."""
        if not has_rdma():
            # Wherever libibverbs is installed UCX loads its RDMA module, and with that the wheel's
            # libnl beside the system's: the process then ends in a segmentation fault (1.5.1).
            os.environ.setdefault("UCX_MODULES", "^ib")
        place = Place(region.address, region.nbytes, region.device)
        package = _package(place)
        self._errors = _error_types(package)
        self.name = f"splitserve-{uuid.uuid4().hex}"
        cure = "UCX_TLS must leave tcp or an RDMA transport, and cuda_copy where there is a GPU"
        with self._translated(ConfigError, f"NIXL cannot use this KV pool; {cure}"):
            config = load(f"{package}._api:nixl_agent_config")
            agent = load(f"{package}._api:nixl_agent")
            with _pausing(agent):
                self._agent = agent(self.name, config(enable_prog_thread=True, backends=[_BACKEND]))
            if _BACKEND not in self._agent.backends:
                raise ConfigError("the nixl package that is installed has no UCX")
            pool = [(place.address, region.nbytes, place.device_number, "")]
            self._registered = self._agent.register_memory(pool, _memory(place))

    def metadata(self) -> bytes:
        """What ``join`` takes at a peer."""
        return bytes(self._agent.get_agent_metadata())

    def join(self, metadata: bytes) -> str:
        """Makes a peer's agent known and says its name. Raises TransferFailed."""
        with self._translated(TransferFailed, "NIXL cannot join the peer"):
            name = self._agent.add_remote_agent(metadata)
            name = name.decode() if isinstance(name, bytes) else str(name)
            self._agent.make_connection(name)
            return name

    def leave(self, name: str) -> None:
        """Forgets a peer's agent, also one that has died. Raises TransferFailed."""
        with self._translated(TransferFailed, "NIXL cannot leave the peer"):
            self._agent.remove_remote_agent(name)

    def prepare(self, name: str, operation: Operation, pairs: Pairs) -> Prepared:
        """``name`` is that of the peer's agent, whose pool is the target of a WRITE and the source
        of a READ. Raises TransferFailed, also for memory that the peer has not registered."""
        source, target = tables(pairs)
        source_memory, target_memory = _memory(pairs.source), _memory(pairs.target)
        here, there = (_SELF, name) if operation == "WRITE" else (name, _SELF)
        with self._translated(TransferFailed, "NIXL cannot prepare the copy"):
            made = (
                self._agent.prep_xfer_dlist(here, source, source_memory),
                self._agent.prep_xfer_dlist(there, target, target_memory),
            )
        local, remote = made if operation == "WRITE" else made[::-1]
        return Prepared(operation, local, remote)

    def drop(self, prepared: Prepared) -> None:
        with self._translated(TransferFailed, "NIXL cannot forget a copy"):
            prepared.local.release()
            prepared.remote.release()

    def post(self, prepared: Prepared, rows: range) -> Any:
        """Starts the copy of those rows of the tables and gives its handle. Raises
        TransferFailed."""
        which = np.arange(rows.start, rows.stop, dtype=np.int32)
        with self._translated(TransferFailed, "NIXL did not start the copy"):
            handle = self._agent.make_prepped_xfer(
                prepared.operation, prepared.local, which, prepared.remote, which
            )
            self._agent.transfer(handle)
            return handle

    def ended(self, handle: Any) -> bool:
        """Whether all bytes are in place. Raises TransferFailed for a copy that failed."""
        with self._translated(TransferFailed, "the copy failed"):
            state = self._agent.check_xfer_state(handle)
        if state == "ERR":
            raise TransferFailed("the copy failed (NIXL gives no reason)")
        return bool(state == "DONE")

    def release(self, handle: Any) -> None:
        """Only for a copy that has ended, or before ``close``: it does not stop one."""
        with self._translated(TransferFailed, "NIXL cannot release a copy"):
            handle.release()

    def close(self) -> None:
        """Gives the memory back and ends the agent, which cuts its connections: no read lands in
        the pool after this. Every handle must have been released before. Raises TransferFailed when
        the memory could not be given back; the agent has ended all the same."""
        try:
            with self._translated(TransferFailed, "NIXL cannot give the KV pool back"):
                self._agent.deregister_memory(self._registered)
        finally:
            del self._agent

    @contextmanager
    def _translated(
        self, kind: type[ConfigError] | type[TransferFailed], what: str
    ) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise kind(f"{what}: {_meaning(error)}") from error


def _package(place: Place) -> str:
    """The name of the package that has the modules. Raises ConfigError when there is none."""
    reasons: list[str] = []
    for name in ("nixl",) if place.is_on_gpu else (*_BUILDS, "nixl"):
        try:
            load(f"{name}._api:nixl_agent")
        except ImportError as error:
            reasons.append(str(error))
            continue
        _quieten()
        return name
    raise ConfigError(
        f"connector nixl needs the nixl package: pip install 'splitserve[nixl]' ({reasons[-1]})"
    )


@contextmanager
def _pausing(agent: type[Any]) -> Iterator[None]:
    """Agents that are made meanwhile pause for ``_PAUSE_US``: NIXL can, and its Python layer has no
    setting for it but writes 0 into what it hands down."""
    bindings: Any = import_module(agent.__module__).nixlBind
    config = bindings.nixlAgentConfig

    class Pausing(config):  # type: ignore[misc, valid-type]
        @property
        def pthrDelay(self) -> int:
            return int(config.pthrDelay.__get__(self))

        @pthrDelay.setter
        def pthrDelay(self, _: int) -> None:
            config.pthrDelay.__set__(self, _PAUSE_US)

    bindings.nixlAgentConfig = Pausing
    try:
        yield
    finally:
        bindings.nixlAgentConfig = config


def _quieten() -> None:
    # The package sends its log to stdout by a handler of its own.
    logger = logging.getLogger("nixl")
    logger.handlers.clear()
    logger.propagate = True
    logger.setLevel(logging.WARNING)


def _error_types(package: str) -> tuple[type[Exception], ...]:
    found: Iterable[Any] = vars(import_module(f"{package}._bindings")).values()
    return tuple(kind for kind in found if isinstance(kind, type) and issubclass(kind, Exception))


def _meaning(error: Exception) -> str:
    name = str(error)
    if name in _MEANINGS:
        return f"{_MEANINGS[name]} ({name})"
    return name


_MEANINGS: Final = {
    "NIXL_ERR_REMOTE_DISCONNECT": "the peer's process is gone or cannot be reached any more",
    "NIXL_ERR_NOT_FOUND": "the peer has not registered this memory",
    "NIXL_ERR_BACKEND": "UCX failed; its line on stderr says why",
}


def _memory(place: Place) -> str:
    """What NIXL calls the kind of memory."""
    return "VRAM" if place.is_on_gpu else "DRAM"
