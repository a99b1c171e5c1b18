"""EngineCore: the Engine of ``engine.api`` over any Runner.

    add      -> waiting -> running -> finished (blocks freed) or handed off (blocks exported)
    reserve  -> granted -> activate -> running -> finished
                        -> cancel -> quarantined -> fence or writer_gone -> free

One step: the scheduler says which tokens of which sequences, the runner computes them, and only
then does anything here change. So an exception from the runner or the sink leaves every sequence
where it was. One whose grammar leads nowhere ends before that, alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from splitserve.engine.api import (
    EngineStats,
    KVSink,
    ModelInfo,
    PushSpan,
    Reservation,
    Row,
    Runner,
    Sampled,
    SampleSpec,
    SeqFailure,
    SeqOutput,
)
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.grammar.matcher import Matcher
from splitserve.engine.grammar.store import Grammars
from splitserve.engine.kv.blocks import BlockPool
from splitserve.engine.scheduler import Chunk, Scheduler
from splitserve.engine.sequence import Seq, check_request, new_seq
from splitserve.errors import BugError, CallerError
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.memory import MemoryRegion
from splitserve.protocol.telemetry import KVCounts


@dataclass(frozen=True, slots=True)
class _Granted:
    """A sequence whose KV is still to arrive. It holds the cached prefix it builds on."""

    seq: Seq
    reservation: Reservation


class EngineCore:
    """See ``engine.api.Engine`` for what each method promises.

    Raises ConfigError when the limits leave no way to run anything.
    """

    def __init__(self, runner: Runner, config: SchedulerConfig) -> None:
        self._runner = runner
        self._info = runner.describe()
        layout = self._info.layout
        self._block_size = layout.block_size
        self._pool = BlockPool(layout.num_blocks)
        self._scheduler = Scheduler(config, self._pool, layout.block_size)
        self._sequences: dict[RequestId, Seq] = {}
        self._granted: dict[HandoffId, _Granted] = {}
        self._exports: dict[RequestId, list[int]] = {}
        self._failures: list[SeqFailure] = []
        self._grammars = Grammars(
            runner.tokenizer_json, self._info.vocab_size, self._info.eos_token_ids
        )
        self._arrivals = 0
        self._steps = 0

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
        self._check(request, emitted=emitted, push=push)
        request_id = request.request_id
        if request_id in self._sequences or (push and request_id in self._exports):
            raise CallerError(
                f"request id {request_id} is in use",
                param="request_id",
                status=409,
                code="duplicate_request",
            )
        seq = new_seq(request, self._info, self._next_arrival(), emitted=emitted, push=push)
        self._sequences[request_id] = seq
        self._scheduler.submit(seq)

    def abort(self, request_id: RequestId) -> None:
        seq = self._sequences.pop(request_id, None)
        if seq is not None:
            self._scheduler.leave(seq)
            self._pool.free(seq.blocks)
        self.release(request_id)

    def release(self, request_id: RequestId) -> None:
        self._pool.release(self._exports.pop(request_id, []))

    def _check(
        self, request: GenerateRequest, *, emitted: Sequence[int] = (), push: bool = False
    ) -> None:
        check_request(request, self._info, emitted=emitted, push=push)
        structured = request.sampling.structured_outputs
        if structured is not None:
            self._grammars.check(structured)

    def _next_arrival(self) -> int:
        self._arrivals += 1
        return self._arrivals

    # Handoffs

    def reserve(
        self, handoff: HandoffId, request: GenerateRequest, writer: WorkerId
    ) -> Reservation | None:
        """A repeated call for the same request returns the same reservation.

        ``writer`` must name one life of a process (see ``BlockPool.grant``). Raises CallerError
        also when ``handoff`` is open for another request.
        """
        self._check(request)
        open_grant = self._granted.get(handoff)
        if open_grant is not None:
            if open_grant.seq.request == request:
                return open_grant.reservation
            raise CallerError(
                f"handoff {handoff} is open for another request", param="handoff", status=409
            )
        return self._grant(handoff, request, writer)

    def _grant(
        self, handoff: HandoffId, request: GenerateRequest, writer: WorkerId
    ) -> Reservation | None:
        scheduler = self._scheduler
        seq = new_seq(request, self._info, self._next_arrival())
        shared = scheduler.cached_prefix(seq, seq.prompt_len // self._block_size)
        # One position more than the prompt: the first step here computes the first token.
        positions = min(seq.prompt_len + 1, seq.max_len - 1)
        count = scheduler.blocks_for(positions) - len(shared)
        if not scheduler.has_place_for_grant(count, shared):
            return None
        grant = self._pool.grant(handoff, writer, count, shared)
        if grant is None:
            return None
        epoch, blocks = grant
        seq.blocks = shared
        seq.num_registered = len(shared)
        seq.was_admitted = True
        reservation = Reservation(
            epoch=epoch,
            skip_blocks=len(shared),
            blocks=tuple(blocks[: scheduler.blocks_for(seq.prompt_len) - len(shared)]),
            cached_tokens=scheduler.count_prefix(seq, len(shared)),
        )
        self._granted[handoff] = _Granted(seq, reservation)
        return reservation

    def activate(self, handoff: HandoffId, epoch: int, first_token: int) -> bool:
        """False also, with the grant ended and its blocks freed, when there is nothing to go on
        with: the first token ends the answer, or the request runs here by another way. A token id
        outside the vocabulary has no effect."""
        granted = self._granted.get(handoff)
        if granted is None or not 0 <= first_token < self._info.vocab_size:
            return False
        blocks = self._pool.activate(handoff, epoch)
        if blocks is None:
            return False
        del self._granted[handoff]
        seq = granted.seq
        seq.blocks += blocks
        seq.num_computed = seq.prompt_len
        seq.tokens.append(first_token)
        self._scheduler.register(seq)
        if seq.request_id in self._sequences or seq.ending()[0] is not None:
            self._pool.free(seq.blocks)
            return False
        self._sequences[seq.request_id] = seq
        self._scheduler.join(seq)
        return True

    def cancel(self, handoff: HandoffId) -> int | None:
        epoch = self._pool.cancel(handoff)
        if epoch is not None:
            self._drop_granted(handoff)
        return epoch

    def fence(self, handoff: HandoffId, epoch: int) -> None:
        """A fence that comes before ``cancel`` is remembered: the blocks are free at once then,
        and the grant cannot be activated any more."""
        self._pool.fence(handoff, epoch)

    def writer_gone(self, writer: WorkerId) -> list[HandoffId]:
        ended = self._pool.writer_gone(writer)
        for handoff in ended:
            self._drop_granted(handoff)
        return ended

    def _drop_granted(self, handoff: HandoffId) -> None:
        """Gives up the shared prefix; the granted blocks are the pool's affair."""
        self._pool.free(self._granted.pop(handoff).seq.blocks)

    # Steps

    def has_work(self) -> bool:
        return self._scheduler.has_work()

    def step(self, sink: KVSink | None = None) -> list[SeqOutput]:
        """Raises whatever the runner or the sink raises; the same work is then still to be done,
        except for sequences that are aborted meanwhile."""
        chunks, rows = self._rows(self._scheduler.schedule())
        if not chunks:
            return []
        spans = [self._span(chunk) for chunk in chunks if chunk.seq.push]
        if sink is not None and spans:
            sink.begin(spans)
            self._runner.launch(rows, sink)
        else:
            self._runner.launch(rows, None)
        sampled = self._runner.collect()
        expected = [row.request_id for row in rows if row.sample is not None]
        if [sample.request_id for sample in sampled] != expected:
            raise BugError(f"runner sampled {len(sampled)} rows, {len(expected)} were asked for")
        self._steps += 1
        return self._apply(chunks, sampled)

    def failures(self) -> list[SeqFailure]:
        failures, self._failures = self._failures, []
        return failures

    def _rows(self, scheduled: Sequence[Chunk]) -> tuple[list[Chunk], list[Row]]:
        """Without the sequences whose grammar leads nowhere: those have ended then."""
        chunks: list[Chunk] = []
        rows: list[Row] = []
        for chunk in scheduled:
            try:
                rows.append(self._row(chunk))
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

    def _row(self, chunk: Chunk) -> Row:
        seq = chunk.seq
        start = seq.num_computed
        end = start + chunk.num_tokens
        sample = self._sample_spec(seq) if end == len(seq.tokens) else None
        return Row(seq.request_id, seq.tokens[start:end], start, seq.blocks, sample)

    def _sample_spec(self, seq: Seq) -> SampleSpec:
        params = seq.request.sampling
        position = len(seq.tokens) - seq.prompt_len
        banned = tuple(seq.stops) if len(seq.tokens) < seq.min_len else ()
        allowed = self._allowed(seq, banned)
        if allowed is not None:
            banned = ()
        if seq.needs_history:
            output = seq.tokens[seq.prompt_len :]
            return SampleSpec(params, position, seq.request.token_ids, output, banned, allowed)
        return SampleSpec(params, position, (), (), banned, allowed)

    def _allowed(self, seq: Seq, banned: tuple[int, ...]) -> bytes | None:
        """Raises CallerError when the sequence's grammar leads nowhere."""
        if seq.request.sampling.structured_outputs is None:
            return None
        matcher = self._matcher(seq)
        if seq.request.sampling.ignore_eos:
            banned += self._info.eos_token_ids
        return matcher.mask(banned)

    def _matcher(self, seq: Seq) -> Matcher:
        """Made when first needed, so that what waits holds none; has taken in all the output."""
        structured = seq.request.sampling.structured_outputs
        assert structured is not None
        if seq.matcher is None:
            seq.matcher = self._grammars.matcher(structured, seq.stops)
        for token in seq.tokens[seq.prompt_len + seq.matcher.count :]:
            seq.matcher.accept(token)
        return seq.matcher

    def _span(self, chunk: Chunk) -> PushSpan:
        """What the chunk writes and, at a sequence's first chunk, the cached blocks before it: the
        receiver may have fewer of them than this pool has."""
        seq = chunk.seq
        end = self._scheduler.blocks_for(seq.num_computed + chunk.num_tokens)
        return PushSpan(seq.request_id, seq.num_pushed, tuple(seq.blocks[seq.num_pushed : end]))

    def _apply(self, chunks: list[Chunk], sampled: list[Sampled]) -> list[SeqOutput]:
        outputs: list[SeqOutput] = []
        samples = iter(sampled)
        for chunk in chunks:
            seq = chunk.seq
            self._scheduler.advance(chunk)
            # Only the last chunk of a prompt may end within a block.
            seq.num_pushed = seq.num_computed // self._block_size
            if seq.num_computed == len(seq.tokens):
                outputs.append(self._take_token(seq, next(samples)))
        return outputs

    def _take_token(self, seq: Seq, sample: Sampled) -> SeqOutput:
        index = len(seq.tokens) - seq.prompt_len
        seq.tokens.append(sample.token_id)
        if seq.matcher is not None:
            seq.matcher.accept(sample.token_id)
        finish, stop_reason = seq.ending()
        if finish is not None or seq.push:
            self._end(seq)
        cached, seq.cached_tokens = seq.cached_tokens, None
        return SeqOutput(
            request_id=seq.request_id,
            index=index,
            token_id=sample.token_id,
            logprob=sample.logprob,
            finish_reason=finish,
            stop_reason=stop_reason,
            cached_tokens=cached,
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
        )

    def close(self) -> None:
        self._runner.close()
