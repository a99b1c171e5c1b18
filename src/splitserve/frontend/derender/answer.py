"""A stream of Deltas folded into a whole answer, and the token counts of a request."""

from collections.abc import Sequence
from typing import Any

from splitserve.frontend.derender.events import Delta, Event, Finish, Scored, visible_text


class Answer:
    """All deltas of one choice, joined."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.token_ids: list[int] = []
        self.scored: list[Scored] | None = None
        self.finish: Finish | None = None

    def add(self, delta: Delta) -> None:
        self.events += delta.events
        self.token_ids += delta.token_ids
        if delta.scored is not None:
            self.scored = self.scored or []
            self.scored += delta.scored
        self.finish = delta.finish

    @property
    def text(self) -> str:
        """The visible text alone."""
        return visible_text(self.events)


def usage(
    prompt_tokens: int, completion_tokens: int, cached_tokens: Sequence[int | None]
) -> dict[str, Any]:
    """OpenAI's ``usage``. ``cached_tokens`` holds one entry a prompt; the detail is left out
    when no worker told."""
    counts: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    told = [count for count in cached_tokens if count is not None]
    if told:
        counts["prompt_tokens_details"] = {"cached_tokens": sum(told)}
    return counts
