"""What rendering gives: everything the rest of the request's path needs to know."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitserve.frontend.derender.context import ParseContext
from splitserve.frontend.derender.options import AnswerOptions
from splitserve.frontend.derender.pipeline import PLAIN
from splitserve.ids import RequestId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Prompt:
    """``echo`` is the text to give back before the answer; empty when it was not asked for."""

    token_ids: tuple[int, ...]
    echo: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One HTTP request. Choice ``p * n + i`` is the i-th answer to prompt ``p``;
    ``sampling`` holds one entry a choice.

    ``context`` says how answers are read. With ``continuous_usage`` every chunk of a stream tells
    the counts so far. ``repeated`` are fields that an answer of the Responses API repeats.
    """

    prompts: tuple[Prompt, ...]
    sampling: tuple[SamplingParams, ...]
    n: int
    options: AnswerOptions
    stream: bool
    include_usage: bool
    return_token_ids: bool
    priority: int
    cache_salt: str
    context: ParseContext = PLAIN
    continuous_usage: bool = False
    repeated: Mapping[str, Any] = field(default_factory=dict)

    def prompt_of(self, choice: int) -> Prompt:
        return self.prompts[choice // self.n]

    def shown_ids(self, choice: int) -> tuple[int, ...] | None:
        """The prompt's ids where the client asked to see token ids."""
        return self.prompt_of(choice).token_ids if self.return_token_ids else None

    def requests(self, answer_id: str, owner: str, session: str = "") -> list[GenerateRequest]:
        """One request a choice, named ``{answer_id}-{choice}``, of ``owner`` and ``session``."""
        return [
            GenerateRequest(
                request_id=RequestId(f"{answer_id}-{choice}"),
                token_ids=self.prompt_of(choice).token_ids,
                sampling=sampling,
                priority=self.priority,
                cache_salt=self.cache_salt,
                owner=owner,
                whole=not self.stream and not self.options.stop,
                session=session,
            )
            for choice, sampling in enumerate(self.sampling)
        ]
