"""What is asked of a library: copies of layers, over agents."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from splitserve.transfer.base import PeerId, TransferId
from splitserve.transfer.posting.pairs import Pairs

Operation = Literal["WRITE", "READ"]


class Agent(Protocol):
    """One end of a library with this worker's pool registered. Used by one thread.

    Calls are short, and only ``join`` may wait for a peer. ``prepare`` and ``post`` give handles of
    the library's own. Each call may raise TransferFailed.
    """

    name: str

    def metadata(self) -> bytes:
        """What ``join`` takes at a peer."""
        ...

    def join(self, metadata: bytes) -> str:
        """Makes a peer's agent known and says its name."""
        ...

    def leave(self, name: str) -> None: ...
    def prepare(self, name: str, operation: Operation, pairs: Pairs) -> Any: ...
    def drop(self, prepared: Any) -> None: ...

    def post(self, prepared: Any, rows: range) -> Any:
        """Starts to copy those rows of the prepared pairs."""
        ...

    def ended(self, handle: Any) -> bool:
        """Whether all bytes are in place. Raises TransferFailed for a copy of which no more byte
        arrives, and not all have."""
        ...

    def release(self, handle: Any) -> None: ...

    def close(self) -> None:
        """No read lands in the pool after this."""
        ...


class Mark(Protocol):
    """A point in the device's work."""

    def ended(self) -> bool:
        """Never waits."""
        ...


class Marks(Protocol):
    """What a connector needs of a GPU. ``transfer/cuda/stored.py`` has it."""

    def enter(self) -> None:
        """Makes the GPU current in the calling thread."""
        ...

    def mark(self) -> Mark:
        """Ends when all is done that the engine has given the device so far. Never waits."""
        ...


@dataclass(slots=True, eq=False)
class LayerCopy:
    """One set of spans of every layer.

    It is prepared once, when the first layer is posted, and dropped when neither the owner nor a
    copy under way needs it.
    """

    peer: PeerId
    operation: Operation
    pairs: Pairs
    nbytes: int
    prepared: Any = None
    users: int = 1


@dataclass(slots=True)
class Start:
    """One layer to copy, once ``mark`` has ended."""

    transfer: TransferId
    copy: LayerCopy
    layer: int
    mark: Mark | None


@dataclass(frozen=True, slots=True)
class End:
    """``error`` is empty when all bytes are in place."""

    transfer: TransferId
    nbytes: int
    error: str = ""
