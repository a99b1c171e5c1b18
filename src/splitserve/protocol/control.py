"""Messages between gateway and worker that are not about one handoff."""

from typing import Final

import msgspec

from splitserve.ids import Incarnation, RequestId, WorkerId
from splitserve.protocol.generate import GenerateRequest, TokenChunk

PROTOCOL_VERSION = 2

DRAIN_GRACE_S: Final = 30.0
"""How long running work may go on at a worker that is to leave or to change its role."""


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Gateway to worker, first frame of a connection. ``gateway`` names one life of a gateway's
    process: whoever says the same name again is taken for the same, back on a new connection."""

    gateway: str


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Worker to gateway, in answer to Hello.

    ``role`` is what the router sends there (``colocated``, ``prefill``, ``decode``) at the time;
    Load tells of changes; every worker can do everything. ``address`` is where other workers reach
    it. ``fingerprint`` is what must agree before two processes work together. ``max_num_seqs``
    requests run there at a time; None where nobody knows.
    """

    worker: WorkerId
    incarnation: Incarnation
    role: str
    address: str
    pid: int
    model: str
    connector: str
    max_model_len: int
    vocab_size: int
    block_size: int
    kv_token_bytes: int
    fingerprint: dict[str, str]
    max_num_seqs: int | None = None


class Pair(msgspec.Struct, frozen=True, tag=True):
    """Gateway to prefill: open (or keep) a link to the decode worker at ``address``."""

    worker: WorkerId
    address: str


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Gateway to worker: do all of ``request`` here.

    ``emitted`` are output tokens the client already has (replay after a failure): the worker
    computes them as part of the prompt and continues at output index ``len(emitted)``.
    """

    request: GenerateRequest
    emitted: tuple[int, ...] = ()


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Gateway to worker: forget the request in whatever state it is. Never an error."""

    request_id: RequestId


class Began(msgspec.Struct, frozen=True, array_like=True):
    """What a worker tells once of a request: how long its first token there took, in seconds of the
    worker's own clock. None for what it does not know.

    ``queue_s``: from when it was given the request until it began with it or, where the KV came
    from elsewhere, from its grant until the KV was there. ``first_s``: from there to the token.
    ``call_s``: where a worker behind HTTP speaks through the gateway, from the request sent to its
    first token, on the gateway's clock.
    """

    request_id: RequestId
    queue_s: float | None = None
    first_s: float | None = None
    call_s: float | None = None


class StepTokens(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Worker to gateway: everything one engine step brought for this gateway, in one frame.

    ``began`` tells of requests whose first token here is among them; where a worker learns it late,
    it comes with the last.
    """

    chunks: tuple[TokenChunk, ...]
    began: tuple[Began, ...] = ()


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Worker to gateway: the request ended here without an answer.

    ``code``: ``invalid`` (caller's fault; ``reason`` may be shown to the client, ``param`` is the
    field of the request it is about), ``duplicate``, ``draining``, ``role_changed``,
    ``transfer_failed``, ``writer_lost``, ``decode_lost`` or ``lease_expired``.
    """

    request_id: RequestId
    code: str
    reason: str
    param: str | None = None


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Gateway or operator to worker: take nothing new, finish what runs, then exit.

    What still runs after ``grace_s`` is handed over: Failed with code ``draining``, so that whoever
    asked continues it elsewhere.
    """

    grace_s: float = DRAIN_GRACE_S


class SetRole(msgspec.Struct, frozen=True, tag=True):
    """Gateway or operator to worker: be sent other work from now on. Answered by RoleSet.

    Work of the old kind goes on for ``grace_s``; what is left of it then ends in Failed with code
    ``role_changed``.
    """

    role: str
    grace_s: float = DRAIN_GRACE_S


class RoleSet(msgspec.Struct, frozen=True, tag=True):
    """Worker to whoever sent SetRole: its role now. ``refused`` says why it is not the one asked
    for; empty when it is."""

    role: str
    refused: str = ""


class Inventory(msgspec.Struct, frozen=True, tag=True):
    """Gateway to worker: which of this connection's requests do you hold? Answered by Holding."""

    serial: int


class Holding(msgspec.Struct, frozen=True, tag=True):
    """Worker to gateway: every request of this connection that has not ended here, after all that
    was said before Inventory ``serial`` and before all that is said later."""

    serial: int
    requests: tuple[RequestId, ...]
