"""What the machine asks for: values that the orchestrator carries out, in order."""

from dataclasses import dataclass
from enum import Enum

from splitserve.ids import WorkerId
from splitserve.protocol.handoff import GrantTarget


@dataclass(frozen=True, slots=True)
class SendReserve:
    worker: WorkerId
    writer: WorkerId


@dataclass(frozen=True, slots=True)
class SendPrefill:
    worker: WorkerId
    target: GrantTarget


@dataclass(frozen=True, slots=True)
class SendSubmit:
    """The whole request, continuing after the tokens that have left already."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class SendAbort:
    """Of attempt number ``attempt``: a later one may run on the same worker."""

    worker: WorkerId
    attempt: int


@dataclass(frozen=True, slots=True)
class Requeue:
    """Wait for room, ``refused_by`` having none."""

    refused_by: WorkerId


@dataclass(frozen=True, slots=True)
class CountFallback:
    rung: str
    reason: str


class Fault(Enum):
    """Whose fault a failed request is; each is an error class of its own."""

    CALLER = "caller"
    OVERLOAD = "overload"
    PEER = "peer"


@dataclass(frozen=True, slots=True)
class FailRequest:
    """``message`` is fit for the client: no addresses, no internals. ``param`` is the field of
    the request that it is about, where the caller is at fault."""

    fault: Fault
    message: str
    param: str | None = None


Action = SendReserve | SendPrefill | SendSubmit | SendAbort | Requeue | CountFallback | FailRequest
