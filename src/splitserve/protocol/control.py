"""Messages between gateway and worker that are not about one handoff."""

import msgspec

from splitserve.ids import Incarnation, RequestId, WorkerId
from splitserve.protocol.generate import GenerateRequest, TokenChunk

PROTOCOL_VERSION = 1


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Gateway to worker, first frame of a connection."""

    gateway: str


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Worker to gateway, in answer to Hello.

    ``role`` is what the worker was started for (``colocated``, ``prefill``, ``decode``): a hint for
    the router and a set of batch limits; every worker can do everything. ``address`` is where other
    workers reach it. ``fingerprint`` is what must agree before two processes work together.
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


class StepTokens(msgspec.Struct, frozen=True, tag=True):
    """Worker to gateway: everything one engine step brought for this gateway, in one frame."""

    chunks: tuple[TokenChunk, ...]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Worker to gateway: the request ended here without an answer.

    ``code``: ``invalid`` (caller's fault; ``reason`` may be shown to the client), ``duplicate``,
    ``draining``, ``transfer_failed``, ``writer_lost``, ``decode_lost`` or ``lease_expired``.
    """

    request_id: RequestId
    code: str
    reason: str


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Gateway or launcher to worker: take nothing new, finish what runs, then exit."""
