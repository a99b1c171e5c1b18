"""What can happen to a request: values that the machine takes in."""

from dataclasses import dataclass

from splitserve.ids import WorkerId
from splitserve.protocol.handoff import GrantTarget
from splitserve.router.policy.base import Placement


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Where a request could go on after a failure, as the router sees it now.

    ``handoff``: prefill and decode workers for another split attempt. ``whole``: a worker that can
    do all of it.
    """

    handoff: Placement | None = None
    whole: WorkerId | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """There is room: these workers take it."""

    placement: Placement


@dataclass(frozen=True, slots=True)
class Granted:
    """The decode worker reserved blocks."""

    worker: WorkerId
    target: GrantTarget


@dataclass(frozen=True, slots=True)
class Spoke:
    """The worker's first token of this attempt came."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker has done its part and holds nothing of the request any more."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class PartFailed:
    """The worker refused, failed or was lost (code ``lost``); it holds nothing any more.

    ``code`` and ``param`` as in Failed and Refuse.
    """

    worker: WorkerId
    code: str
    reason: str
    alternatives: Alternatives = Alternatives()
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The whole answer is here, in order; ``worker`` brought what completed it."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Broken:
    """A worker did what the protocol does not allow."""

    reason: str


@dataclass(frozen=True, slots=True)
class ClientGone:
    """Nobody reads the answer."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time for this request is up."""


Event = Placed | Granted | Spoke | Ended | PartFailed | Answered | Broken | ClientGone | Deadline
