"""A batch that was given to the runner: what of it the sequences count on, and how that is undone.

With its launch a sequence's KV counts as computed, so that the next step can be scheduled before
anything is known of this one. A launch that is taken back must be the newest one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from splitserve.engine.api import PENDING, PushSpan, Row, Sampled
from splitserve.engine.scheduler import Chunk
from splitserve.errors import BugError


@dataclass(slots=True)
class Launch:
    """``sampling`` are the chunks after which a token is chosen, in the order of their rows.
    ``spans`` are the pushing sequences' parts, in the order of ``chunks``."""

    chunks: list[Chunk]
    spans: list[PushSpan]
    sampling: list[Chunk] = field(default_factory=list)

    def begin(self, rows: Sequence[Row], block_size: int) -> None:
        """The runner has taken the ``rows``, one for each chunk."""
        for chunk, row in zip(self.chunks, rows, strict=True):
            seq, _, end = chunk
            seq.num_computed = end
            seq.open_launches += 1
            if seq.push:
                # Only the last chunk of a prompt may end within a block.
                seq.num_pushed = end // block_size
            if row.sample is not None:
                # What ends with this token, whatever it is, has nothing to compute after it.
                if seq.runs_ahead and end + 1 < seq.max_len:
                    seq.tokens.append(PENDING)
                    seq.sampled_row = len(self.sampling)
                self.sampling.append(chunk)

    def check(self, sampled: Sequence[Sampled]) -> None:
        """Raises BugError unless these are the tokens that were asked for."""
        expected = [chunk.seq.request_id for chunk in self.sampling]
        if [sample.request_id for sample in sampled] != expected:
            raise BugError(f"runner sampled {len(sampled)} rows, {len(expected)} were asked for")

    def take_back(self) -> None:
        """All of it is to be computed again. The sequences' ``open_launches`` are the caller's."""
        for chunk in self.chunks:
            chunk.seq.num_computed = chunk.start
        for chunk in self.sampling:
            del chunk.seq.tokens[chunk.end :]
        pushing = (chunk.seq for chunk in self.chunks if chunk.seq.push)
        for seq, span in zip(pushing, self.spans, strict=True):
            seq.num_pushed = span.first
