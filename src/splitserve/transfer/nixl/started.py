"""What is asked of NIXL: copies of layers, over agents."""

from dataclasses import dataclass
from typing import Any, Protocol

from splitserve.transfer.base import PeerId, TransferId
from splitserve.transfer.nixl.agent import Operation, Prepared
from splitserve.transfer.nixl.pairs import Pairs


class Agent(Protocol):
    """``agent.NixlAgent``."""

    def metadata(self) -> bytes: ...
    def join(self, metadata: bytes) -> str: ...
    def leave(self, name: str) -> None: ...
    def prepare(self, name: str, operation: Operation, pairs: Pairs) -> Prepared: ...
    def drop(self, prepared: Prepared) -> None: ...
    def post(self, prepared: Prepared, rows: range) -> Any: ...
    def ended(self, handle: Any) -> bool: ...
    def release(self, handle: Any) -> None: ...
    def close(self) -> None: ...


class Mark(Protocol):
    """A point in the device's work."""

    def ended(self) -> bool:
        """Never waits."""
        ...


@dataclass(slots=True, eq=False)
class LayerCopy:
    """One set of spans of every layer.

    NIXL's tables are made once, when the first layer is posted, and are dropped when neither the
    owner nor a copy under way needs them.
    """

    peer: PeerId
    operation: Operation
    pairs: Pairs
    nbytes: int
    prepared: Prepared | None = None
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
