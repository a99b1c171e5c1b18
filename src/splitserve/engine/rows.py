"""What a runner and a sink are told of a scheduled chunk. Changes nothing but grammar matchers."""

from typing import Final

from splitserve.engine.api import PENDING, ModelInfo, PushSpan, Row, SampleSpec
from splitserve.engine.grammar.matcher import Matcher
from splitserve.engine.grammar.store import Grammars
from splitserve.engine.scheduler import Chunk
from splitserve.engine.sequence import Seq


class RowMaker:
    def __init__(self, info: ModelInfo, grammars: Grammars) -> None:
        self._eos: Final = info.eos_token_ids
        self._block_size: Final = info.layout.block_size
        self._grammars: Final = grammars

    def row(self, chunk: Chunk) -> Row:
        """Raises CallerError when the sequence's grammar leads nowhere."""
        seq, start, end = chunk
        tokens = seq.tokens[start:end]
        sample = self._sample_spec(seq) if end == len(seq.tokens) else None
        follows = seq.sampled_row if tokens[0] == PENDING else None
        return Row(seq.request_id, tokens, start, seq.blocks, sample, follows)

    def span(self, chunk: Chunk) -> PushSpan:
        """What the chunk writes and, at a sequence's first chunk, the cached blocks before it: the
        receiver may have fewer of them than this pool has."""
        seq = chunk.seq
        blocks = seq.blocks[seq.num_pushed : -(-chunk.end // self._block_size)]
        return PushSpan(seq.request_id, seq.num_pushed, tuple(blocks))

    def _sample_spec(self, seq: Seq) -> SampleSpec:
        params = seq.request.sampling
        length = len(seq.tokens)
        position = length - seq.prompt_len
        banned = tuple(seq.stops) if length < seq.min_len else ()
        if seq.runs_ahead:
            return SampleSpec(params, position, banned=banned)
        allowed = self._allowed(seq, banned)
        if allowed is not None:
            banned = ()
        if seq.needs_history:
            output = seq.tokens[seq.prompt_len :]
            return SampleSpec(params, position, seq.request.token_ids, output, banned, allowed)
        return SampleSpec(params, position, banned=banned, allowed=allowed)

    def _allowed(self, seq: Seq, banned: tuple[int, ...]) -> bytes | None:
        if seq.request.sampling.structured_outputs is None:
            return None
        matcher = self._matcher(seq)
        if seq.request.sampling.ignore_eos:
            banned += self._eos
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
