"""POST /inference/v1/generate: token ids in, token ids out, as vLLM's endpoint of this name.

For whoever renders and derenders elsewhere. Unlike an engine without a tokenizer it looks for stop
strings; the ids it gives end with the token that completed one.
"""

from dataclasses import replace
from typing import Any, Final

import msgspec
from msgspec import structs

from splitserve.errors import CallerError
from splitserve.frontend.derender.context import ParseContext, thinking_after
from splitserve.frontend.derender.events import Delta, Scored
from splitserve.frontend.derender.head import DONE, Head, encode_json, event
from splitserve.frontend.forms import Counts, Form, Metrics, Page
from splitserve.frontend.model import ServedModel
from splitserve.frontend.render.constraint import thinking_of
from splitserve.frontend.render.job import Job
from splitserve.frontend.render.pipeline import Renderer
from splitserve.frontend.scale_out.asked import prompt_end
from splitserve.frontend.scale_out.requests import decode
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.protocol.sampling import SamplingParams
from splitserve.protocol.scale_out import GenerateBody

_LOWEST: Final = -9999.0
"""vLLM's stand-in for minus infinity, which JSON does not have."""

ALL_ROOM: Final = 2**31 - 1
"""More than any model has: as with vLLM an answer may fill the context unless told otherwise."""

_NOT_TAKEN: Final = ("features", "content_parts", "kv_transfer_params", "ec_transfer_params")


def token_job(renderer: Renderer, body: bytes) -> Job:
    """Raises CallerError naming the field."""
    asked = decode(GenerateBody, body)
    if asked.output_mode != "tokens":
        raise CallerError("'output_mode' must be 'tokens'", param="output_mode")
    for name in _NOT_TAKEN:
        if getattr(asked, name) is not None:
            raise CallerError(
                f"'{name}' is not taken from clients", param=name, code="unsupported_parameter"
            )
    try:
        job = renderer.completion(encode_json(_completion(asked)))
    except CallerError as error:
        raise _renamed(error) from error
    if asked.reasoning_ended is not False:
        return job
    return replace(job, sampling=_after_reasoning(renderer.model, asked, job))


def _after_reasoning(
    model: ServedModel, asked: GenerateBody, job: Job
) -> tuple[SamplingParams, ...]:
    """What the answer is held to begins after its reasoning, as in a chat that is not split."""
    reasoning = model.parsers.reasoning
    thinking = thinking_after(prompt_end(model, asked.token_ids), reasoning)
    free = thinking_of(ParseContext(reasoning=reasoning, thinking=thinking), model.tokenizer)
    return tuple(
        params
        if params.structured_outputs is None
        else structs.replace(
            params,
            structured_outputs=structs.replace(
                params.structured_outputs,
                think_begin=free.begin,
                think_end=free.end,
                think_open=free.open,
            ),
        )
        for params in job.sampling
    )


def _completion(asked: GenerateBody) -> dict[str, Any]:
    """The same request as the body of a completion, so that it meets the same checks."""
    sampling: dict[str, Any] = msgspec.to_builtins(asked.sampling_params)
    return {
        **sampling,
        "model": asked.model,
        "prompt": asked.token_ids,
        "max_tokens": sampling.get("max_tokens", ALL_ROOM),
        "stream": asked.stream or False,
        "stream_options": msgspec.to_builtins(asked.stream_options) if asked.stream else None,
        "return_token_ids": asked.return_token_ids,
        "cache_salt": asked.cache_salt,
        "priority": asked.priority,
    }


def _renamed(error: CallerError) -> CallerError:
    name = error.param or ""
    if name == "prompt":
        param = "token_ids"
    elif name in GenerateBody.__struct_fields__ or not name:
        return error
    else:
        param = f"sampling_params.{name}"
    message = error.message.replace(f"'{name}'", f"'{param}'", 1)
    return CallerError(message, param=param, status=error.status, code=error.code)


class _Choice:
    """One answer's tokens; a chunk each, or all in one."""

    def __init__(self, head: Head, index: int, prompt_token_ids: tuple[int, ...] | None) -> None:
        self._head = head
        self._index = index
        self._prompt_token_ids = prompt_token_ids
        self._token_ids: list[int] = []
        self._scored: list[Scored] | None = None
        self._last = Delta()

    def write(self, delta: Delta) -> bytes:
        if not delta.token_ids and delta.finish is None:
            return b""
        fields: dict[str, Any] = {"request_id": self._head.answer_id, "output_mode": "tokens"}
        if self._prompt_token_ids is not None:
            fields["prompt_token_ids"], self._prompt_token_ids = self._prompt_token_ids, None
        choice = _choice(self._index, delta.token_ids, delta.scored, delta)
        return event({**fields, "choices": [choice]})

    def keep(self, delta: Delta) -> bytes:
        self._token_ids += delta.token_ids
        if delta.scored is not None:
            self._scored = [*(self._scored or ()), *delta.scored]
        self._last = delta
        return b""

    def whole(self) -> dict[str, Any]:
        return _choice(self._index, self._token_ids, self._scored, self._last)


def _choice(index: int, token_ids: Any, scored: Any, last: Delta) -> dict[str, Any]:
    finish = last.finish
    return {
        "index": index,
        "token_ids": token_ids,
        "finish_reason": None if finish is None else finish.reason,
        "stop_reason": None if finish is None else finish.stop_reason,
        "logprobs": None if scored is None else {"content": [_entry(each) for each in scored]},
    }


def _entry(scored: Scored) -> dict[str, Any]:
    top = [
        {"token_id": token_id, "logprob": max(logprob, _LOWEST), "rank": place}
        for place, (token_id, logprob) in enumerate(scored.top, 1)
    ]
    return {
        "token_id": scored.token_id,
        "logprob": max(scored.logprob, _LOWEST),
        "rank": scored.rank,
        "top_logprobs": top,
    }


def _streamed(_: Tokenizer, head: Head, job: Job) -> Page:
    choices = [_Choice(head, number, job.shown_ids(number)) for number in range(len(job.sampling))]

    def close(counts: Counts, _: Metrics | None) -> bytes:
        if not job.include_usage:
            return DONE
        return event({"request_id": head.answer_id, "choices": [], "usage": counts}) + DONE

    return Page([choice.write for choice in choices], close)


def _whole(_: Tokenizer, head: Head, job: Job) -> Page:
    choices = [_Choice(head, number, None) for number in range(len(job.sampling))]

    def close(counts: Counts, _: Metrics | None) -> bytes:
        return encode_json(
            {
                "request_id": head.answer_id,
                "output_mode": "tokens",
                "model": head.model,
                "created": head.created,
                "usage": counts,
                "prompt_token_ids": job.shown_ids(0),
                "choices": [choice.whole() for choice in choices],
            }
        )

    return Page([choice.keep for choice in choices], close)


TOKENS: Final = Form(prefix="generate-tokens", render=token_job, streamed=_streamed, whole=_whole)
