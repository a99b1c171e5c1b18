"""Messages that move one request's KV from a prefill worker to a decode worker.

    gateway -> decode    Reserve      ask for room, before any prefill starts
    decode  -> gateway   Grant        blocks are reserved (or Refuse)
    gateway -> prefill   Prefill      compute, push into the grant
    decode  ~~ prefill    (KV bytes of the prompt's start that decode has and prefill lacks)
    prefill ~~ decode    (KV bytes, through the connector, layer by layer)
    prefill -> gateway   StepTokens   the first token, straight to the client
    prefill -> decode    KVReady      all bytes are in place; go on after this token
    prefill -> gateway   PrefillDone  what was moved and what it cost
    decode  -> gateway   StepTokens   the second token and all that follow

KVReady, FenceRequest, Fence and Renew run on the link between the two workers, so that a dead or
slow gateway can neither leak a block nor delay a decode.
"""

import msgspec

from splitserve.ids import HandoffId, Incarnation, RequestId, WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.whereabouts import UNKNOWN, Whereabouts


class Reserve(msgspec.Struct, frozen=True, tag=True):
    """Gateway to decode: reserve blocks for ``request``, to be written by worker ``writer``.

    ``lease_s``: the grant lapses when neither Renew nor KVReady arrives for this long.
    """

    handoff: HandoffId
    request: GenerateRequest
    writer: WorkerId
    lease_s: float


class GrantTarget(msgspec.Struct, frozen=True):
    """Where a prefill worker may write: part of Grant, passed on in Prefill.

    ``blocks`` are the decode worker's block numbers for the prompt's blocks from number
    ``skip_blocks`` on: the ones before lie in the decode worker's prefix cache already, in
    ``cached_blocks``. Those the prefill worker may read instead of computing them: they stay as
    they are until KVReady or, in a voided grant, until Fence.
    ``link`` names the link between the two incarnations; a grant never outlives it.
    """

    handoff: HandoffId
    epoch: int
    worker: WorkerId
    link: str
    skip_blocks: int
    blocks: tuple[int, ...]
    cached_blocks: tuple[int, ...] = ()


class Grant(msgspec.Struct, frozen=True, tag=True):
    """Decode to gateway: room is reserved. ``cached_tokens`` are already at the decode worker."""

    target: GrantTarget
    cached_tokens: int


class Refuse(msgspec.Struct, frozen=True, tag=True):
    """Decode (or prefill) to gateway: not now (``retryable``) or never; ``reason`` is for people.

    ``code``: ``no_blocks``, ``not_linked``, ``too_long``, ``invalid``, ``duplicate``, ``draining``,
    ``cancelled`` or ``stale_link``. With ``too_long`` and ``invalid`` ``reason`` is fit for the
    client, and ``param`` is the field of the request it is about.
    """

    handoff: HandoffId
    code: str
    reason: str
    retryable: bool
    param: str | None = None


class Prefill(msgspec.Struct, frozen=True, tag=True):
    """Gateway to prefill: compute the prompt, push its KV into ``target``, sample one token."""

    request: GenerateRequest
    target: GrantTarget
    lease_s: float


class PrefillDone(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Prefill to gateway, after KVReady was sent (or was not needed: the first token ended it).

    Intervals in seconds, measured in the prefill worker: ``queue_s`` until the first chunk ran,
    ``prefill_s`` from there to the first token, ``exposed_s`` from the first token to the last
    byte in place, which the client sees in the gap after its first token.

    ``until_token``: nobody told of the last byte, ``exposed_s`` ends with decode's first token.
    ``first_waited``: the client's first token waited for the KV too.
    """

    request_id: RequestId
    handoff: HandoffId
    kv_bytes: int
    queue_s: float
    prefill_s: float
    exposed_s: float
    until_token: bool = False
    first_waited: bool = False


class KVReady(msgspec.Struct, frozen=True, tag=True):
    """Prefill to decode: every granted block is written, nothing is read that is still wanted;
    continue after ``first_token``."""

    handoff: HandoffId
    epoch: int
    first_token: int


class FenceRequest(msgspec.Struct, frozen=True, tag=True):
    """Decode to prefill: this grant is void; stop writing and reading, and say so with Fence."""

    handoff: HandoffId
    epoch: int


class Fence(msgspec.Struct, frozen=True, tag=True):
    """Prefill to decode: no write of this grant is under way and none will start; what is read of
    it will not be used."""

    handoff: HandoffId
    epoch: int


class Renew(msgspec.Struct, frozen=True, tag=True):
    """Prefill to decode, by time and not by steps: these handoffs are still being worked on."""

    handoffs: tuple[HandoffId, ...]


class Attach(msgspec.Struct, frozen=True, tag=True):
    """Prefill to decode, first frame on a link: who will write, from which process."""

    worker: WorkerId
    incarnation: Incarnation
    pid: int
    fingerprint: dict[str, str]
    connector: str


class Attached(msgspec.Struct, frozen=True, tag=True):
    """Decode to prefill: the link's name and the connector's description of the decode pool.
    ``whereabouts`` are for the log only."""

    worker: WorkerId
    incarnation: Incarnation
    link: str
    fingerprint: dict[str, str]
    peer: bytes
    whereabouts: Whereabouts = UNKNOWN
