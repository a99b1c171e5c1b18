"""The engine's seams: Engine (what a role drives), Runner (what computes), KVSink (who is told).

An engine is driven by one thread. No method blocks except ``step``, which runs one batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.generate import FinishReason, GenerateRequest, TokenLogprob
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.protocol.sampling import SamplingParams
from splitserve.protocol.telemetry import KVCounts


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is. ``content_hash`` covers configuration and weights.

    ``layout`` is that of all KV heads together, whatever number of shards holds them.
    """

    name: str
    content_hash: str
    dtype: str
    vocab_size: int
    max_model_len: int
    eos_token_ids: tuple[int, ...]
    layout: KVLayout


PENDING: Final = -1
"""Stands in a sequence's tokens for one that the device has not chosen yet."""


class SampleSpec(msgspec.Struct, frozen=True):
    """How to choose the token after a row's last one.

    ``position`` is the output position (the draw depends on seed and position only).
    ``output`` and ``prompt`` are given where a penalty needs them, else empty.
    ``banned`` ids must not be chosen (end-of-sequence before ``min_tokens``).
    ``allowed`` has one bit for each token id (id 0 is the lowest bit of the first byte): only ids
    whose bit is set may be chosen, at least one is. None allows all.
    """

    params: SamplingParams
    position: int
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    banned: Sequence[int] = ()
    allowed: bytes | None = None


class Row(msgspec.Struct, frozen=True):
    """One sequence's part of a step: compute ``tokens`` at positions ``start`` and following.

    ``blocks`` is the block table and covers at least ``start + len(tokens)`` positions; all
    positions before ``start`` hold valid KV, or will once the launch before has run. While a
    sequence keeps its blocks it is the same list from row to row, to which blocks are added at the
    end only. ``sample`` is None while more of the prompt follows.

    ``follows`` is set when the row's one token is not known yet: it is the one that the launch
    before this one, still open, chooses for its sampled row of that number (0 is the first row with
    a ``sample``). ``tokens`` then holds ``PENDING``.
    """

    request_id: RequestId
    tokens: Sequence[int]
    start: int
    blocks: Sequence[int]
    sample: SampleSpec | None
    follows: int | None = None


class Sampled(msgspec.Struct, frozen=True):
    """The token chosen for the row of ``request_id``."""

    request_id: RequestId
    token_id: int
    logprob: TokenLogprob | None


class Runner(Protocol):
    """Executes one step's rows. Knows tensors, knows nothing of queues, roles or sockets.

    ``depth`` is how many launches may be open at once: 1, or 2 where a device computes while
    Python prepares the next step. Launches run in order. A ``launch`` that raises leaves nothing
    open; a ``collect`` that raises has ended the oldest.
    """

    @property
    def depth(self) -> int: ...

    def describe(self) -> ModelInfo: ...

    def tokenizer_json(self) -> str | None:
        """Text of the model's tokenizer.json, read anew; None when the engine has none."""
        ...

    def regions(self) -> tuple[MemoryRegion, ...]:
        """The KV pool as memory: one region for each tensor-parallel shard, laid out as
        ``describe().layout.shards(len(regions))`` says, in that order. Stable until close.

        A block has the same number in all of them."""
        ...

    def launch(self, rows: Sequence[Row], sink: "KVSink | None") -> None:
        """Starts computing; may return before the device is done. At most ``depth`` are open.

        Stores each row's K/V into its blocks and calls ``sink.on_layer`` once per layer, in order.
        """
        ...

    def ready(self) -> bool:
        """Whether ``collect`` would return without waiting. Never blocks."""
        ...

    def collect(self) -> list[Sampled]:
        """Waits for the oldest open launch; one Sampled per row with a ``sample``, in row order."""
        ...

    def close(self) -> None:
        """Frees memory. May be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class PushSpan:
    """Blocks of one pushing sequence that this step completes or extends.

    ``first`` is the number within the prompt of ``blocks[0]``; ``blocks`` are pool block numbers.
    """

    request_id: RequestId
    first: int
    blocks: tuple[int, ...]


class KVSink(Protocol):
    """Told about new KV while a step runs. The role builds it from the connector."""

    def begin(self, spans: Sequence[PushSpan]) -> None:
        """Before the forward pass: which blocks of which pushing sequences the step writes."""
        ...

    def on_layer(self, layer: int) -> None:
        """The K/V of ``layer`` is stored for all spans of this step (on a GPU: enqueued)."""
        ...


@dataclass(frozen=True, slots=True)
class Reservation:
    """Blocks granted for a push. ``blocks`` are to be written: the prompt's blocks from number
    ``skip_blocks`` on. ``cached_tokens`` lie before them in ``cached_blocks``, which the writer may
    read until it has written all or has confirmed the fence."""

    epoch: int
    skip_blocks: int
    blocks: tuple[int, ...]
    cached_tokens: int
    cached_blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    """Blocks held for KV that is to be brought from elsewhere: a part of a prompt.

    ``blocks`` are the pool's, for the prompt's blocks from number ``first`` on; ``digests`` are
    their names (see ``kv.prefix``), equal in all engines of this block size that hold the same
    tokens after the same tokens. ``cached`` holds what is here already: the blocks before them.
    """

    cached: tuple[int, ...]
    blocks: tuple[int, ...]
    digests: tuple[bytes, ...]

    @property
    def first(self) -> int:
        return len(self.cached)


class FirstToken(msgspec.Struct, frozen=True):
    """Told once of a sequence, with its first token from this engine. Seconds of its clock.

    ``cached_tokens`` of the prompt did not have to be computed; None where the KV came from
    elsewhere. ``queue_s``: from when the sequence was added until it was scheduled or, where it was
    reserved, from there until its KV was here. ``first_s``: from there to the token.
    """

    cached_tokens: int | None
    queue_s: float
    first_s: float


class SeqOutput(msgspec.Struct, frozen=True):
    """What one step brought for one sequence: exactly one new token.

    ``index`` is its output position, ``first`` is told with the first one only. ``finish_reason``
    None means it goes on. A pushing sequence always ends with its first token: ``handed_off`` is
    then True unless the token ended the answer.
    """

    request_id: RequestId
    index: int
    token_id: int
    logprob: TokenLogprob | None
    finish_reason: FinishReason | None
    stop_reason: int | None
    first: FirstToken | None
    handed_off: bool = False

    @property
    def cached_tokens(self) -> int | None:
        return None if self.first is None else self.first.cached_tokens


@dataclass(frozen=True, slots=True)
class SeqFailure:
    """A sequence that could not go on, by the caller's fault: it has ended and holds nothing.

    ``reason`` is fit for the client.
    """

    request_id: RequestId
    reason: str


@dataclass(frozen=True, slots=True)
class StepTimes:
    """How a step went that launched one batch while the one before was open; the clock's seconds.

    The launch took from ``began`` to ``launched``, the older batch was brought at ``brought``.
    ``waited``: the device still computed that one at ``launched``, so ``brought`` is when it ended
    and the new one began. ``even``: the new one computes one token of each sequence, no prompts.
    """

    began: float
    launched: float
    brought: float
    waited: bool
    even: bool


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since start and the present queue. ``computed_tokens``: tokens of prompts for which
    steps computed the KV here, again where it was done again."""

    running: int
    waiting: int
    waiting_tokens: int
    steps: int
    preemptions: int
    prefix_hit_tokens: int
    prefix_query_tokens: int
    computed_tokens: int


class Engine(Protocol):
    """Scheduler and block pool over a Runner.

    ``add``, ``reserve`` raise CallerError when the request can never run here (too long for the
    model or the pool, a grammar that cannot be built). ``abort`` and ``release`` accept ids they do
    not know: the other side may have been faster.
    """

    def describe(self) -> ModelInfo: ...

    def regions(self) -> tuple[MemoryRegion, ...]:
        """The runner's: see there."""
        ...

    def add(
        self, request: GenerateRequest, *, emitted: Sequence[int] = (), push: bool = False
    ) -> None:
        """Queues a sequence. ``emitted`` are output tokens computed elsewhere already.

        With ``push`` it ends after its first token and its blocks stay exported until ``release``.
        """
        ...

    def reserve(
        self, handoff: HandoffId, request: GenerateRequest, writer: WorkerId
    ) -> Reservation | None:
        """Grants blocks for the prompt and the first step after it; None when there is no room."""
        ...

    def activate(self, handoff: HandoffId, epoch: int, first_token: int) -> bool:
        """KV has arrived: the sequence joins the running batch after ``first_token``.

        False when the grant is gone or of another epoch (late or duplicate KVReady): no effect.
        """
        ...

    def cancel(self, handoff: HandoffId) -> int | None:
        """Voids a grant: its blocks are quarantined and what it builds on is held until ``fence``.
        Returns its epoch, or None."""
        ...

    def fence(self, handoff: HandoffId, epoch: int) -> None:
        """The writer will neither write nor read any more: quarantined blocks of that epoch become
        free."""
        ...

    def writer_gone(self, writer: WorkerId) -> list[HandoffId]:
        """The writer's process is dead: its grants end and its quarantine is freed.

        Returns the handoffs that were still granted.
        """
        ...

    def abort(self, request_id: RequestId) -> None:
        """Ends a sequence that was added or activated; its blocks are freed before return or, when
        an open launch writes into them, once that has been collected."""
        ...

    def release(self, request_id: RequestId) -> None:
        """The pushed copy of a finished sequence is complete or given up: unpin its blocks."""
        ...

    def fetch(
        self, request: GenerateRequest, *, push: bool = False, tokens: int | None = None
    ) -> Fetch | None:
        """Holds blocks for what this engine lacks of the prompt's first ``tokens`` (None: of all).

        Only whole blocks, and never the one with the prompt's last token, which is always computed.
        None when nothing is lacking, or when there is no room for it now. Raises CallerError where
        ``add`` would. Every fetch ends with one ``adopt`` or ``drop``.
        """
        ...

    def adopt(self, fetch: Fetch, count: int) -> None:
        """The first ``count`` blocks of ``fetch`` hold their KV now, the others are given back.

        They are in the prefix cache, evicted after all that is there: an ``add`` of the request
        that follows at once finds them, unless room is made for others before its turn comes.
        """
        ...

    def drop(self, fetch: Fetch) -> None:
        """Nothing of use was brought, and nothing is being brought any more."""
        ...

    def offer(self, limit: int) -> list[tuple[bytes, int]]:
        """Names and numbers of blocks in the prefix cache that were not offered before, at most
        ``limit``, the oldest ones first. They keep their content until ``unpin``."""
        ...

    def unpin(self, blocks: Sequence[int]) -> None:
        """What was offered has been copied, or nobody wants it."""
        ...

    def has_work(self) -> bool:
        """Whether ``step`` would run a batch or bring what an earlier one computed."""
        ...

    def computing(self) -> bool:
        """Whether a launched batch is still being computed, so that ``step`` might wait for it."""
        ...

    def step(self, sink: KVSink | None = None) -> list[SeqOutput]:
        """Launches the next batch and brings what the oldest open one computed.

        Where the runner's ``depth`` is 1 that is the same batch. Otherwise the device works on one
        batch while the next is prepared, and the first call after a rest brings nothing. Empty also
        when there is nothing to do.
        """
        ...

    def last_step(self) -> StepTimes | None:
        """Of the last call of ``step``; None when it did not launch a batch behind another."""
        ...

    def failures(self) -> list[SeqFailure]:
        """Sequences that the steps since the last call had to end without an answer."""
        ...

    def counts(self) -> KVCounts: ...

    def stats(self) -> EngineStats: ...

    def close(self) -> None: ...
