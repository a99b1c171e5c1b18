"""What the client asked of its answer's text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How token ids become the answer's text. ``stop`` are strings, matched in the text.

    ``min_tokens`` tokens come before a stop string can match. ``reasoning`` False leaves out what
    the model thought.
    """

    stop: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special_tokens: bool = True
    min_tokens: int = 0
    logprobs: bool = False
    reasoning: bool = True
