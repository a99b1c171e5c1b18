"""One Mooncake engine with this worker's pool registered: all that Splitserve calls of the
package."""

import os
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from splitserve.errors import ConfigError, ProtocolMismatch, TransferFailed
from splitserve.loading import load
from splitserve.protocol.memory import MemoryRegion
from splitserve.transfer.hosts import has_rdma
from splitserve.transfer.mooncake.settings import Network, Way, applied, check
from splitserve.transfer.mooncake.token import TOKEN_BYTES, TokenPage
from splitserve.transfer.posting.pairs import Pairs
from splitserve.transfer.posting.started import Operation

WINDOW: Final = 64
"""How many pieces of one peer are submitted at a time: enough for all streams, and far fewer than
Mooncake refuses."""

PIECE_BYTES: Final = 1 << 20
"""Streams share a long span piece by piece."""

_JOIN_S: Final = 5.0
_JOIN_LOOK_S: Final = 0.001

_DONE: Final = 1
_FAILED: Final = -1
"""The other states say that the piece is under way, also -2: a time limit that stops nothing."""

_NO_BATCH: Final = frozenset({0, -1, 2**64 - 1})
"""What is given for a batch that was not submitted."""

_OLDEST: Final = (0, 3, 13)
_BUILDS: Final = (
    "mooncake-transfer-engine-non-cuda",
    "mooncake-transfer-engine",
    "mooncake-transfer-engine-cuda13",
)


class _Session(msgspec.Struct, frozen=True):
    """An agent's metadata. ``name`` is host and port; at ``token_at`` lies ``token``."""

    name: str
    way: Way
    token_at: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    token: bytes


@dataclass(frozen=True, slots=True)
class Prepared:
    """``session`` is the peer's name."""

    session: str
    operation: Operation
    pairs: Pairs


class Piece(NamedTuple):
    """What Mooncake is asked for at once. Addresses."""

    local: int
    remote: int
    nbytes: int


@dataclass(slots=True, eq=False)
class Posted:
    """One copy: what is not submitted yet, and Mooncake's batches under way, oldest first."""

    session: str
    operation: Operation
    left: deque[Piece]
    batches: deque[int] = field(default_factory=deque)
    error: str = ""


class MooncakeAgent:
    """Used by one thread. Only ``join`` waits for a peer: five seconds, and as long as Mooncake
    waits for the answer of a peer that it does not know yet."""

    def __init__(self, region: MemoryRegion, network: Network) -> None:
        """Raises ConfigError when the package is missing or too old, the environment or the host
        does not allow what is wanted, or the memory cannot be registered."""
        check(os.environ, network.way)
        if network.way == "rdma" and not has_rdma():
            raise ConfigError("connector mooncake finds no RDMA device that is up: use way tcp")
        self._way = network.way
        self._address = region.address
        self._page = TokenPage()
        self._flying: Counter[str] = Counter()
        self._engine = _opened(network)
        self.name = _session_name(network.host, self._engine.get_rpc_port())
        self._register(region.address, region.nbytes)
        self._register(self._page.address, self._page.nbytes)

    def metadata(self) -> bytes:
        """What ``join`` takes at a peer."""
        return msgspec.msgpack.encode(
            _Session(self.name, self._way, self._page.address, self._page.token)
        )

    def join(self, metadata: bytes) -> str:
        """Makes sure that the peer answers, and says its name. Raises TransferFailed; raises
        ProtocolMismatch for a peer that uses another way."""
        try:
            peer = msgspec.msgpack.decode(metadata, type=_Session)
        except msgspec.DecodeError as error:
            raise ProtocolMismatch(f"this is no metadata of Mooncake's: {error}") from error
        if peer.way != self._way:
            raise ProtocolMismatch(f"Mooncake copies by {self._way} here, by {peer.way} there")
        self._recognise(peer)
        return peer.name

    def leave(self, name: str) -> None:
        """Mooncake forgets a peer when the engine ends, and not before."""

    def prepare(self, name: str, operation: Operation, pairs: Pairs) -> Prepared:
        """``name`` is that of the peer's agent, whose pool is the target of a WRITE and the source
        of a READ."""
        return Prepared(name, operation, pairs)

    def drop(self, prepared: Prepared) -> None:
        """Mooncake keeps nothing of it."""

    def post(self, prepared: Prepared, rows: range) -> Posted:
        """Starts the copy of those rows."""
        posted = Posted(prepared.session, prepared.operation, deque(_pieces(prepared, rows)))
        self._submit_some(posted)
        return posted

    def ended(self, handle: Posted) -> bool:
        """Whether all bytes are in place; submits what there is room for now. Raises TransferFailed
        for a copy that failed, once none of it is under way."""
        self._submit_some(handle)
        while handle.batches:
            if not self._oldest_ended(handle):
                return False
            self._submit_some(handle)
        if handle.left:
            return False
        if handle.error:
            raise TransferFailed(handle.error)
        return True

    def release(self, handle: Posted) -> None:
        """Batches that have ended are released already, and no other can be."""

    def close(self) -> None:
        """Gives the memory back and ends the engine with all that it has under way: no read lands
        in the pool after this. Raises TransferFailed when the memory could not be given back; the
        engine has ended all the same."""
        kept = [
            address
            for address in (self._address, self._page.address)
            if self._engine.unregister_memory(address)
        ]
        del self._engine
        self._page.close()
        if kept:
            raise TransferFailed("Mooncake cannot give the KV pool back")

    def _register(self, address: int, nbytes: int) -> None:
        if self._engine.register_memory(address, nbytes):
            raise ConfigError(
                f"Mooncake cannot register {nbytes} bytes of memory; its line on stderr says why"
            )

    def _recognise(self, peer: _Session) -> None:
        room = self._page.room()
        batch = self._submit(peer.name, "READ", Piece(room, peer.token_at, TOKEN_BYTES))
        if batch is None:
            raise TransferFailed(f"Mooncake cannot reach {peer.name}")
        until = time.monotonic() + _JOIN_S
        while (state := self._engine.transfer_check_status(batch)) not in (_DONE, _FAILED):
            if time.monotonic() > until:
                raise TransferFailed(f"{peer.name} does not answer")
            time.sleep(_JOIN_LOOK_S)
        if state == _FAILED:
            raise TransferFailed(f"{peer.name} is gone or cannot be reached")
        if self._page.read(room) != peer.token:
            raise TransferFailed(f"another process than described answers at {peer.name}")

    def _submit_some(self, copy: Posted) -> None:
        while copy.left and self._flying[copy.session] < WINDOW:
            batch = self._submit(copy.session, copy.operation, copy.left.popleft())
            if batch is None:
                self._fail(copy, "Mooncake did not start it")
                return
            copy.batches.append(batch)
            self._flying[copy.session] += 1

    def _submit(self, session: str, operation: Operation, piece: Piece) -> int | None:
        if operation == "WRITE":
            submit = self._engine.batch_transfer_async_write
        else:
            submit = self._engine.batch_transfer_async_read
        batch = submit(session, [piece.local], [piece.remote], [piece.nbytes])
        return None if batch in _NO_BATCH else int(batch)

    def _oldest_ended(self, copy: Posted) -> bool:
        state = self._engine.transfer_check_status(copy.batches[0])
        if state not in (_DONE, _FAILED):
            return False
        copy.batches.popleft()
        self._flying[copy.session] -= 1
        if state == _FAILED:
            self._fail(copy, "the peer is gone or refuses (Mooncake's line on stderr says more)")
        return True

    def _fail(self, copy: Posted, why: str) -> None:
        copy.left.clear()
        copy.error = copy.error or why


def _pieces(prepared: Prepared, rows: range) -> Iterator[Piece]:
    for row in rows:
        source, target, nbytes = prepared.pairs.at(row)
        local, remote = (source, target) if prepared.operation == "WRITE" else (target, source)
        for start in range(0, nbytes, PIECE_BYTES):
            yield Piece(local + start, remote + start, min(PIECE_BYTES, nbytes - start))


def _session_name(host: str, port: int) -> str:
    """As a peer's ``join`` needs it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _opened(network: Network) -> Any:
    """An engine that listens. Raises ConfigError."""
    # The package reads how much to log when it is imported, and the rest when an engine is made.
    with applied(os.environ, network):
        make = _engine_type()
        try:
            engine = make()
            failed = engine.initialize(network.host, "P2PHANDSHAKE", network.way, "")
        except RuntimeError as error:
            raise ConfigError(f"Mooncake cannot start on {network.host}: {error}") from error
    if failed:
        raise ConfigError(f"Mooncake cannot start on {network.host}; its line on stderr says why")
    return engine


def _engine_type() -> Callable[[], Any]:
    """The class. Raises ConfigError."""
    try:
        found: Callable[[], Any] = load("mooncake.engine:TransferEngine")
    except ImportError as error:
        raise ConfigError(
            "connector mooncake needs Mooncake's transfer engine: pip install "
            "'splitserve[mooncake]', and the system's libibverbs1, libnuma1 and libcurl4 "
            f"({error})"
        ) from error
    for name in _BUILDS:
        if (installed := _version(name)) and installed < _OLDEST:
            raise ConfigError(
                f"{name} {version(name)} calls a write done before it has arrived, or gives it up "
                "while it may still land: pip install -U 'splitserve[mooncake]'"
            )
    return found


def _version(package: str) -> tuple[int, ...]:
    """Its first three numbers; empty when it is not installed."""
    try:
        numbers = re.findall(r"\d+", version(package))
    except PackageNotFoundError:
        return ()
    return tuple(int(number) for number in numbers[:3])
