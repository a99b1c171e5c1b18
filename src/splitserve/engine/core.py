"""EngineCore: the Engine of ``engine.api`` over any Runner.

    add      -> waiting -> running -> finished (blocks freed) or handed off (blocks exported)
    reserve  -> granted -> activate -> running -> finished
                        -> cancel -> quarantined -> fence or writer_gone -> free
    fetch    -> held -> adopt -> cached
                     -> drop  -> free

One step: the scheduler says which tokens of which sequences, the runner is given them
(``launches``), and what an earlier launch computed is collected. Where the runner's depth is 2 the
step is scheduled while the device works on the one before:

    launch 1                    launch 2   collect 1   launch 3   collect 2   ...
    device: [------ 1 ------------------][------ 2 ------------][------ 3 ---

A token that is not known yet is PENDING in its sequence. A sequence whose next choice depends on
it (a grammar, a penalty) waits for it, and so does all when memory is short (see ``scheduler``).
Blocks that an open launch writes stay held until it is collected, also when their sequence is over:
they might be granted to another process, whose writes are in no order with this device's.

An exception from the runner's launch or the sink leaves every sequence where it was; one from
collect takes back all open launches. One whose grammar leads nowhere ends before that, alone.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from splitserve.clock import Clock, monotonic
from splitserve.engine.api import (
    EngineStats,
    Fetch,
    KVSink,
    ModelInfo,
    Reservation,
    Row,
    Runner,
    Sampled,
    SeqFailure,
    SeqOutput,
    StepTimes,
)
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.fetching import Fetching
from splitserve.engine.grammar.store import Grammars
from splitserve.engine.grants import Grants
from splitserve.engine.kv.blocks import BlockPool
from splitserve.engine.launches import Launch
from splitserve.engine.rows import RowMaker
from splitserve.engine.scheduler import Chunk, Scheduler
from splitserve.engine.sequence import Seq, check_request, new_seq
from splitserve.errors import CallerError
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.memory import MemoryRegion
from splitserve.protocol.telemetry import KVCounts


class EngineCore:
    """See ``engine.api.Engine`` for what each method promises.

    Raises ConfigError when the limits leave no way to run anything.
    """

    def __init__(self, runner: Runner, config: SchedulerConfig, clock: Clock = monotonic) -> None:
        self._runner = runner
        self._info = runner.describe()
        layout = self._info.layout
        self._block_size = layout.block_size
        self._pool = BlockPool(layout.num_blocks)
        self._scheduler = Scheduler(config, self._pool, layout.block_size, clock)
        self._sequences: dict[RequestId, Seq] = {}
        self._grants = Grants(self._scheduler, self._pool, self._block_size)
        self._fetching = Fetching(self._scheduler, self._pool, self._block_size)
        self._exports: dict[RequestId, list[int]] = {}
        self._failures: list[SeqFailure] = []
        self._grammars = Grammars(
            runner.tokenizer_json, self._info.vocab_size, self._info.eos_token_ids
        )
        self._rows = RowMaker(self._info, self._grammars)
        self._depth = runner.depth
        self._open: deque[Launch] = deque()
        self._arrivals = 0
        self._steps = 0
        self._computed_tokens = 0
        self._clock = clock
        self._times: StepTimes | None = None

    def describe(self) -> ModelInfo:
        """The runner's model. ``max_model_len`` is lowered to what the pool holds, so that whoever
        clamps ``max_tokens`` by it never asks for more than can run."""
        layout = self._info.layout
        pool_tokens = layout.num_blocks * layout.block_size
        return replace(self._info, max_model_len=min(self._info.max_model_len, pool_tokens))

    def regions(self) -> tuple[MemoryRegion, ...]:
        return self._runner.regions()

    # Sequences

    def add(
        self, request: GenerateRequest, *, emitted: Sequence[int] = (), push: bool = False
    ) -> None:
        """Raises CallerError with status 409 while the request id is in use here: until it ended
        and, for a pushing sequence, until its blocks are released."""
        self._check_new(request, emitted=emitted, push=push)
        seq = new_seq(request, self._info, *self._next_arrival(), emitted=emitted, push=push)
        self._sequences[request.request_id] = seq
        self._scheduler.submit(seq)

    def abort(self, request_id: RequestId) -> None:
        seq = self._sequences.pop(request_id, None)
        if seq is not None:
            self._scheduler.leave(seq)
            self._finish(seq)
        self.release(request_id)

    def release(self, request_id: RequestId) -> None:
        self._pool.release(self._exports.pop(request_id, []))

    def _check_new(
        self, request: GenerateRequest, *, emitted: Sequence[int] = (), push: bool = False
    ) -> None:
        self._check(request, emitted=emitted, push=push)
        request_id = request.request_id
        if request_id in self._sequences or (push and request_id in self._exports):
            raise CallerError(
                f"request id {request_id} is in use",
                param="request_id",
                status=409,
                code="duplicate_request",
            )

    def _check(
        self, request: GenerateRequest, *, emitted: Sequence[int] = (), push: bool = False
    ) -> None:
        check_request(request, self._info, emitted=emitted, push=push)
        structured = request.sampling.structured_outputs
        if structured is not None:
            self._grammars.check(structured)

    def _next_arrival(self) -> tuple[int, float]:
        self._arrivals += 1
        return self._arrivals, self._clock()

    # Prefix cache

    def fetch(
        self, request: GenerateRequest, *, push: bool = False, tokens: int | None = None
    ) -> Fetch | None:
        self._check_new(request, push=push)
        seq = new_seq(request, self._info, 0)
        return self._fetching.fetch(seq, seq.prompt_len if tokens is None else tokens)

    def adopt(self, fetch: Fetch, count: int) -> None:
        self._fetching.adopt(fetch, count)

    def drop(self, fetch: Fetch) -> None:
        self._fetching.drop(fetch)

    def offer(self, limit: int) -> list[tuple[bytes, int]]:
        return self._pool.offer(limit)

    def unpin(self, blocks: Sequence[int]) -> None:
        self._pool.release(blocks)

    # Handoffs

    def reserve(
        self, handoff: HandoffId, request: GenerateRequest, writer: WorkerId
    ) -> Reservation | None:
        """A repeated call for the same request returns the same reservation.

        ``writer`` must name one life of a process (see ``BlockPool.grant``). Raises CallerError
        also when ``handoff`` is open for another request.
        """
        self._check(request)
        known = self._grants.known(handoff, request)
        if known is not None:
            return known
        seq = new_seq(request, self._info, *self._next_arrival())
        return self._grants.grant(handoff, seq, writer)

    def activate(self, handoff: HandoffId, epoch: int, first_token: int) -> bool:
        """False also, with the grant ended and its blocks freed, when there is nothing to go on
        with: the first token ends the answer, or the request runs here by another way. A token id
        outside the vocabulary has no effect."""
        if not 0 <= first_token < self._info.vocab_size:
            return False
        seq = self._grants.activate(handoff, epoch)
        if seq is None:
            return False
        seq.tokens.append(first_token)
        self._scheduler.register(seq, seq.num_computed)
        if seq.request_id in self._sequences or seq.ending(len(seq.tokens))[0] is not None:
            self._pool.free(seq.blocks)
            return False
        self._sequences[seq.request_id] = seq
        self._scheduler.join(seq)
        return True

    def cancel(self, handoff: HandoffId) -> int | None:
        return self._grants.cancel(handoff)

    def fence(self, handoff: HandoffId, epoch: int) -> None:
        """A fence that comes before ``cancel`` is remembered: the blocks are free at once then,
        and the grant cannot be activated any more."""
        self._pool.fence(handoff, epoch)

    def writer_gone(self, writer: WorkerId) -> list[HandoffId]:
        return self._grants.writer_gone(writer)

    # Steps

    def has_work(self) -> bool:
        return bool(self._open) or self._scheduler.has_work()

    def computing(self) -> bool:
        return bool(self._open) and not self._runner.ready()

    def step(self, sink: KVSink | None = None) -> list[SeqOutput]:
        """Raises whatever the runner or the sink raises; the same work is then still to be done,
        except for sequences that are aborted meanwhile."""
        self._times, began = None, self._clock()
        launched = len(self._open) < self._depth and self._launch(sink)
        if self._open and (len(self._open) == self._depth or not launched):
            return self._collect(began)
        return []

    def last_step(self) -> StepTimes | None:
        return self._times

    def failures(self) -> list[SeqFailure]:
        failures, self._failures = self._failures, []
        return failures

    def _launch(self, sink: KVSink | None) -> bool:
        """False when there is nothing that can be computed now."""
        if self._open and not self._scheduler.may_run_ahead():
            return False
        chunks, rows = self._schedule()
        if not chunks:
            return False
        spans = [self._rows.span(chunk) for chunk in chunks if chunk.seq.push]
        if sink is not None and spans:
            sink.begin(spans)
            self._runner.launch(rows, sink)
        else:
            self._runner.launch(rows, None)
        launch = Launch(chunks, spans)
        launch.begin(rows, self._block_size)
        self._open.append(launch)
        return True

    def _schedule(self) -> tuple[list[Chunk], list[Row]]:
        """Without the sequences whose grammar leads nowhere: those have ended then."""
        chunks: list[Chunk] = []
        rows: list[Row] = []
        for chunk in self._scheduler.schedule():
            try:
                rows.append(self._rows.row(chunk))
            except CallerError as error:
                self._fail(chunk.seq, error.message)
            else:
                chunks.append(chunk)
        return chunks, rows

    def _fail(self, seq: Seq, reason: str) -> None:
        self.abort(seq.request_id)
        self._failures.append(SeqFailure(seq.request_id, reason))
        structured = seq.request.sampling.structured_outputs
        if structured is not None:
            self._grammars.forget(structured)

    def _collect(self, began: float) -> list[SeqOutput]:
        """What the oldest open launch brought. ``began`` is when the step did."""
        try:
            launched, waited = self._clock(), not self._runner.ready()
            sampled = self._runner.collect()
            brought = self._clock()
            self._open[0].check(sampled)
        except BaseException:
            self._take_back()
            raise
        launch = self._open.popleft()
        self._steps += 1
        if self._open:
            newest = self._open[-1]
            even = not newest.spans and all(end - start == 1 for _, start, end in newest.chunks)
            self._times = StepTimes(began, launched, brought, waited, even)
        for chunk in launch.chunks:
            self._computed(chunk)
        return [
            self._take_token(chunk, sample, brought)
            for chunk, sample in zip(launch.sampling, sampled, strict=True)
            if not chunk.seq.is_over
        ]

    def _take_back(self) -> None:
        """Nothing that is open counts. The device still has to be done with it."""
        try:
            for _ in range(len(self._open) - 1):
                self._runner.collect()
        finally:
            while self._open:
                launch = self._open.pop()
                launch.take_back()
                for chunk in launch.chunks:
                    self._left(chunk.seq)

    def _computed(self, chunk: Chunk) -> None:
        seq, start, end = chunk
        self._left(seq)
        self._computed_tokens += max(0, min(end, seq.prompt_len) - start)
        if not seq.is_over:
            self._scheduler.register(seq, end)

    def _left(self, seq: Seq) -> None:
        """One launch less writes into the sequence's blocks."""
        seq.open_launches -= 1
        if seq.is_over and not seq.open_launches:
            self._pool.free(seq.blocks)

    def _take_token(self, chunk: Chunk, sample: Sampled, brought: float) -> SeqOutput:
        """The token takes its place, where another launch may have it PENDING."""
        seq, _, end = chunk
        seq.tokens[end : end + 1] = (sample.token_id,)
        if seq.matcher is not None:
            seq.matcher.accept(sample.token_id)
        finish, stop_reason = seq.ending(end + 1)
        if finish is not None or seq.push:
            self._end(seq)
        return SeqOutput(
            request_id=seq.request_id,
            index=end - seq.prompt_len,
            token_id=sample.token_id,
            logprob=sample.logprob,
            finish_reason=finish,
            stop_reason=stop_reason,
            first=seq.first_token(brought) if seq.unheard else None,
            handed_off=seq.push and finish is None,
        )

    def _end(self, seq: Seq) -> None:
        del self._sequences[seq.request_id]
        self._scheduler.leave(seq)
        if seq.push:
            # Even if the answer is over: the connector may still read what it was told to push.
            self._pool.export(seq.blocks)
            self._exports[seq.request_id] = seq.blocks
        else:
            self._finish(seq)

    def _finish(self, seq: Seq) -> None:
        """Frees the blocks, at once or when the last launch that writes into them is collected."""
        if seq.open_launches:
            seq.is_over = True
        else:
            self._pool.free(seq.blocks)

    # Readings

    def counts(self) -> KVCounts:
        return self._pool.counts()

    def stats(self) -> EngineStats:
        scheduler = self._scheduler
        return EngineStats(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            waiting_tokens=scheduler.waiting_tokens(),
            steps=self._steps,
            preemptions=scheduler.preemptions,
            prefix_hit_tokens=scheduler.prefix_hit_tokens,
            prefix_query_tokens=scheduler.prefix_query_tokens,
            computed_tokens=self._computed_tokens,
        )

    def close(self) -> None:
        self._runner.close()
