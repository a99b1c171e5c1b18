"""OpenAI requests to the bodies of generate requests."""

import re
from typing import Final

import msgspec

from splitserve.errors import CallerError
from splitserve.frontend.model import ServedModel
from splitserve.frontend.render.job import Job
from splitserve.frontend.render.pipeline import Renderer
from splitserve.frontend.scale_out.requests import decode
from splitserve.ids import new_request_id
from splitserve.protocol.sampling import SamplingParams
from splitserve.protocol.sampling import StructuredOutputs as Constraint
from splitserve.protocol.scale_out import (
    GenerateBody,
    ReasoningParserKwargs,
    Sampling,
    StreamOptions,
    StructuredOutputs,
)

_encode: Final = msgspec.json.encode
_SAFE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class _Asked(msgspec.Struct, frozen=True):
    """What a Job no longer knows. ``seed`` is the client's own: a service that draws one for itself
    may be faster than one that is told which."""

    request_id: str | None = None
    seed: int | None = None
    chat_template_kwargs: dict[str, object] | None = None


class RenderService:
    """All methods take a request's body and its X-Request-Id ("" without one). They raise
    CallerError and nothing else.

    Transfer parameters are not passed on: whoever routes the request adds them.
    """

    def __init__(self, model: ServedModel, renderer: Renderer) -> None:
        self._model = model
        self._renderer = renderer

    def chat(self, body: bytes, asked_id: str) -> bytes:
        """A GenerateBody for POST /v1/chat/completions/render."""
        (one,) = self._bodies(self._renderer.chat(body), body, "chatcmpl", asked_id)
        return _encode(one)

    def completion(self, body: bytes, asked_id: str) -> bytes:
        """A list with a GenerateBody a prompt for POST /v1/completions/render."""
        return _encode(self._bodies(self._renderer.completion(body), body, "cmpl", asked_id))

    def responses(self, body: bytes, asked_id: str) -> bytes:
        """A GenerateBody for POST /v1/responses/render."""
        (one,) = self._bodies(self._renderer.responses(body), body, "resp", asked_id)
        return _encode(one)

    def _bodies(self, job: Job, body: bytes, prefix: str, asked_id: str) -> list[GenerateBody]:
        asked = decode(_Asked, body)
        name = asked_id or _checked_id(asked.request_id)
        base = f"{prefix}-{name}" if name else new_request_id(prefix)
        reasoning = job.context.reasoning is not None
        kwargs = ReasoningParserKwargs(dict(asked.chat_template_kwargs or {}))
        options = StreamOptions(job.include_usage, job.continuous_usage)
        return [
            GenerateBody(
                request_id=base if len(job.prompts) == 1 else f"{base}-{place}",
                token_ids=prompt.token_ids,
                sampling_params=_sampling(job, job.sampling[place * job.n], asked.seed),
                model=self._model.name,
                stream=job.stream,
                stream_options=options if job.stream else None,
                return_token_ids=job.return_token_ids,
                reasoning_ended=job.context.thinking == "closed" if reasoning else None,
                reasoning_parser_kwargs=kwargs if reasoning else None,
                cache_salt=job.cache_salt or None,
                priority=job.priority,
            )
            for place, prompt in enumerate(job.prompts)
        ]


def _checked_id(request_id: str | None) -> str:
    if request_id is None:
        return ""
    if not _SAFE_ID.fullmatch(request_id):
        raise CallerError(
            "'request_id' must have 1 to 128 letters, digits, '.', '_', ':' or '-'",
            param="request_id",
        )
    return request_id


def _sampling(job: Job, params: SamplingParams, seed: int | None) -> Sampling:
    constraint = params.structured_outputs
    return Sampling(
        max_tokens=params.max_tokens,
        n=job.n,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        seed=seed,
        stop=job.options.stop or None,
        stop_token_ids=params.stop_token_ids or None,
        ignore_eos=params.ignore_eos,
        min_tokens=params.min_tokens,
        logprobs=params.logprobs,
        skip_special_tokens=job.options.skip_special_tokens,
        include_stop_str_in_output=job.options.include_stop,
        logit_bias=params.logit_bias or None,
        structured_outputs=None if constraint is None else _structured(constraint),
    )


def _structured(constraint: Constraint) -> StructuredOutputs:
    return StructuredOutputs(
        json=constraint.json,
        regex=constraint.regex,
        choice=constraint.choice,
        grammar=constraint.grammar,
        json_object=constraint.json_object or None,
        structural_tag=constraint.structural_tag,
    )
