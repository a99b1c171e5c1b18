"""One long request: chunks of token ids in as lines, OpenAI's events out while they arrive.

    1. first line     requests.SessionStart: the model, the prompt's ids, the client's request
    2. every other    one event of the generate stream, as JSON or as it is (``data: {...}``)
    3. answer         server-sent events, as a streamed chat or completion; [DONE] at the end

Nothing is sent twice and nothing travels back and forth, so this costs the least of the three.
"""

import time
from typing import Any, Final, Protocol

from splitserve.errors import CallerError
from splitserve.frontend.derender import chat, completions
from splitserve.frontend.derender.answer import usage
from splitserve.frontend.derender.call_ids import new_call_ids
from splitserve.frontend.derender.events import Delta
from splitserve.frontend.derender.head import DONE, Head
from splitserve.frontend.derender.running_usage import RunningUsage
from splitserve.frontend.render.checks import check_model
from splitserve.frontend.scale_out.asked import (
    Asked,
    asked_chat,
    asked_completion,
    require_prompt_ids,
)
from splitserve.frontend.scale_out.choice_reader import (
    ChoiceReader,
    brings_logprobs,
    check_choice,
    with_logprobs_of,
)
from splitserve.frontend.scale_out.requests import SessionStart, decode
from splitserve.frontend.scale_out.tier import (
    ANSWER_PREFIX,
    Kind,
    TextTier,
    check_prompt,
)
from splitserve.ids import new_request_id
from splitserve.protocol.scale_out import ChunkChoice, GenerateChunk

_EVENT: Final = b"data:"
_END: Final = b"[DONE]"


class _Writer(Protocol):
    def write(self, delta: Delta) -> bytes: ...


class Session:
    """State of one session, opened with its first line. Raises CallerError and nothing else."""

    def __init__(self, tier: TextTier, kind: Kind, first_line: bytes) -> None:
        start = decode(SessionStart, first_line)
        self._tier = tier
        self._kind: Kind = kind
        self._prompt_ids = start.prompt_token_ids
        model = tier.model
        check_model(start.model, model.name)
        self._prompt_length = check_prompt(model, start.prompt_token_ids, "prompt_token_ids")
        self._asked = self._asked_of(start)
        self._stream_options = start.stream_options or self._asked.stream_options
        self._prompt_tokens = start.prompt_tokens
        self._cached_tokens: int | None = None
        self._answer_id = start.request_id
        self._created = int(time.time())
        self._readers: dict[int, tuple[ChoiceReader, _Writer]] = {}
        self._lines = 1
        self.over = False

    def feed(self, line: bytes) -> bytes:
        """The events that a line brings; it is one that is not empty. ``over`` after the last."""
        self._lines += 1
        payload = line.removeprefix(_EVENT).strip()
        if payload == _END:
            self.over = True
            return b""
        try:
            return self._chunk(decode(GenerateChunk, payload))
        except CallerError as error:
            message = f"line {self._lines}: {error.message}"
            raise CallerError(
                message, param=error.param, status=error.status, code=error.code
            ) from error

    def finish(self) -> bytes:
        """The last events. Raises CallerError when an answer has no end."""
        if not all(reader.ended for reader, _ in self._readers.values()) or not self._readers:
            raise CallerError(
                "the lines ended before every choice had a finish_reason", code="incomplete_answer"
            )
        if not self._stream_options.include_usage:
            return DONE
        name = chat.CHUNK_KIND if self._kind == "chat" else completions.KIND
        tokens = sum(reader.tokens for reader, _ in self._readers.values())
        counts = usage(self._prompt_count, tokens, [self._cached_tokens])
        return self._head().usage_event(name, counts) + DONE

    def _chunk(self, chunk: GenerateChunk) -> bytes:
        if self._answer_id is None:
            self._answer_id = chunk.request_id or new_request_id(ANSWER_PREFIX[self._kind])
        if chunk.usage is not None:
            self._cached_tokens = chunk.usage.cached_tokens
            if self._prompt_tokens is None and self._prompt_ids is None:
                self._prompt_tokens = chunk.usage.prompt_tokens
        return b"".join([self._choice(choice, place) for place, choice in enumerate(chunk.choices)])

    def _choice(self, choice: ChunkChoice, place: int) -> bytes:
        param = f"choices[{place}]"
        if choice.index not in self._readers:
            self._open(choice, param)
        reader, writer = self._readers[choice.index]
        if reader.ended:
            return b""
        room = self._tier.model.max_model_len - self._prompt_length - reader.tokens
        check_choice(choice, room, param)
        if choice.token_ids and reader.logprobs and not brings_logprobs(choice):
            raise CallerError(
                f"'{param}.logprobs' is missing, other chunks of the choice have it",
                param=f"{param}.logprobs",
            )
        return writer.write(reader.feed(choice))

    def _open(self, choice: ChunkChoice, param: str) -> None:
        if len(self._readers) >= self._tier.config.max_choices:
            raise CallerError(
                f"'{param}.index': more than {self._tier.config.max_choices} choices",
                param=f"{param}.index",
            )
        asked, tokenizer = self._asked, self._tier.model.tokenizer
        reader = ChoiceReader(
            tokenizer,
            with_logprobs_of(asked.options, choice),
            context=asked.context,
            call_ids=new_call_ids(),
            echo=asked.echo,
            end_ids=self._tier.end_ids,
        )
        running = None
        if self._stream_options.continuous_usage_stats and self._stream_options.include_usage:
            running = RunningUsage(self._prompt_count)
        kind: Any = chat.ChatStream if self._kind == "chat" else completions.CompletionStream
        shown = asked.shown_ids(self._prompt_ids)
        writer: _Writer = kind(tokenizer, self._head(), choice.index, shown, running)
        self._readers[choice.index] = reader, writer

    @property
    def _prompt_count(self) -> int:
        return self._prompt_length if self._prompt_tokens is None else self._prompt_tokens

    def _head(self) -> Head:
        include_usage = bool(self._stream_options.include_usage)
        return Head(self._answer_id or "", self._tier.model.name, self._created, include_usage)

    def _asked_of(self, start: SessionStart) -> Asked:
        model, ids = self._tier.model, start.prompt_token_ids
        if self._kind == "completion":
            return asked_completion(model, start.completion_request, ids, None)
        asked = asked_chat(model, start.chat_request, ids)
        require_prompt_ids(model, ids)
        return asked
