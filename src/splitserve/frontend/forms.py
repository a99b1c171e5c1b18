"""What the endpoints do differently: a Form each, and the Page an answer is written on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from splitserve.frontend.derender import chat, completions
from splitserve.frontend.derender.answer import Answer
from splitserve.frontend.derender.events import Delta
from splitserve.frontend.derender.head import DONE, Head
from splitserve.frontend.derender.responses import ResponseStream
from splitserve.frontend.derender.running_usage import RunningUsage
from splitserve.frontend.render.job import Job
from splitserve.frontend.render.pipeline import Renderer
from splitserve.frontend.tokenizer import Tokenizer

Counts = dict[str, Any]
"""OpenAI's ``usage`` of a chat."""

Metrics = dict[str, Any]
"""``metrics`` as vLLM calls it: where the time of one request went."""

Emit = Callable[[Delta], bytes]
"""Takes a delta in; gives the bytes to send for it, if any."""

TokenIds = tuple[int, ...]


class Writer(Protocol):
    """Writes the events of one choice."""

    def write(self, delta: Delta) -> bytes:
        """Empty when there is nothing to tell yet."""
        ...


@dataclass(frozen=True, slots=True)
class Page:
    """``emits`` holds one entry a choice; ``close`` gives the last bytes of a stream, or the whole
    body of an answer that is no stream. Forms that have no place for metrics leave them out."""

    emits: Sequence[Emit]
    close: Callable[[Counts, Metrics | None], bytes]


NewPage = Callable[[Tokenizer, Head, Job], Page]


@dataclass(frozen=True, slots=True)
class Form:
    """``prefix`` begins the answer's id."""

    prefix: str
    render: Callable[[Renderer, bytes], Job]
    streamed: NewPage
    whole: NewPage


def _streamed(kind: str, writer: Callable[..., Writer]) -> NewPage:
    """Server-sent events as chat and completions have them."""

    def page(tokenizer: Tokenizer, head: Head, job: Job) -> Page:
        def close(counts: Counts, metrics: Metrics | None) -> bytes:
            return (head.usage_event(kind, counts, metrics) if job.include_usage else b"") + DONE

        writers = [
            writer(tokenizer, head, number, job.shown_ids(number), _running(job, number))
            for number in range(len(job.sampling))
        ]
        return Page([one.write for one in writers], close)

    return page


def _running(job: Job, number: int) -> RunningUsage | None:
    if not job.continuous_usage:
        return None
    return RunningUsage(len(job.prompt_of(number).token_ids))


def _folded(
    choice: Callable[[Tokenizer, int, Answer, TokenIds | None], dict[str, Any]],
    kind: str,
) -> NewPage:
    """The whole answer: the same deltas, folded."""

    def page(tokenizer: Tokenizer, head: Head, job: Job) -> Page:
        answers = [Answer() for _ in job.sampling]

        def close(counts: Counts, metrics: Metrics | None) -> bytes:
            choices = [
                choice(tokenizer, number, answer, job.shown_ids(number))
                for number, answer in enumerate(answers)
            ]
            return head.body(kind, choices, counts, metrics)

        return Page([_folding(answer) for answer in answers], close)

    return page


def _folding(answer: Answer) -> Emit:
    def emit(delta: Delta) -> bytes:
        answer.add(delta)
        return b""

    return emit


def _streamed_response(tokenizer: Tokenizer, head: Head, job: Job) -> Page:
    writer = ResponseStream(tokenizer, head, job.repeated)
    return Page([writer.write], lambda counts, _: writer.close(counts))


def _whole_response(tokenizer: Tokenizer, head: Head, job: Job) -> Page:
    writer = ResponseStream(tokenizer, head, job.repeated)

    def emit(delta: Delta) -> bytes:
        writer.write(delta)
        return b""

    return Page([emit], lambda counts, _: writer.body(counts))


CHAT: Final = Form(
    prefix="chatcmpl",
    render=Renderer.chat,
    streamed=_streamed(chat.CHUNK_KIND, chat.ChatStream),
    whole=_folded(chat.chat_choice, chat.KIND),
)

COMPLETION: Final = Form(
    prefix="cmpl",
    render=Renderer.completion,
    streamed=_streamed(completions.KIND, completions.CompletionStream),
    whole=_folded(completions.completion_choice, completions.KIND),
)

RESPONSE: Final = Form(
    prefix="resp",
    render=Renderer.responses,
    streamed=_streamed_response,
    whole=_whole_response,
)
