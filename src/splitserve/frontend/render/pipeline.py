"""Body bytes to a Job, for all endpoints that answer.

1. check the body       protocol/openai: form of each field; checks.py: fields together
2. offer tools          offer.py
3. render               chat.py: messages.py shapes them, the sealed template prints them
4. encode               prompts.py
5. resolve sampling     sampling.py, structured.py
"""

from dataclasses import replace
from typing import Final

from splitserve.errors import CallerError
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.derender.context import ParseContext
from splitserve.frontend.derender.options import AnswerOptions
from splitserve.frontend.derender.pipeline import PLAIN
from splitserve.frontend.model import ServedModel
from splitserve.frontend.render.chat import chat_ids, chat_text, parse_context, template_of
from splitserve.frontend.render.checks import (
    check_chat,
    check_choices,
    check_completion,
    check_model,
    check_response,
    check_shared,
)
from splitserve.frontend.render.constraint import constraint_of
from splitserve.frontend.render.job import Job, Prompt
from splitserve.frontend.render.offer import NOTHING, Offer, offer_of
from splitserve.frontend.render.prompts import Room, check_ids, encode_text
from splitserve.frontend.render.responses import as_chat, renamed, repeated
from splitserve.frontend.render.sampling import resolve_sampling
from splitserve.protocol.openai.chat import ChatRequest
from splitserve.protocol.openai.completions import CompletionRequest
from splitserve.protocol.openai.parse import parse
from splitserve.protocol.openai.responses import ResponsesRequest
from splitserve.protocol.openai.sampling import SamplingFields

DEFAULT_COMPLETION_TOKENS: Final = 16


class Renderer:
    """Stateless but for the model. All methods raise CallerError and nothing else."""

    def __init__(self, model: ServedModel, config: FrontendConfig) -> None:
        self.model: Final = model
        self._max_choices = config.max_choices

    def chat(self, body: bytes) -> Job:
        """The body of POST /v1/chat/completions."""
        request = parse(ChatRequest, body)
        self._check(request, 1)
        check_chat(request)
        return self._chat(request)

    def completion(self, body: bytes) -> Job:
        """The body of POST /v1/completions."""
        request = parse(CompletionRequest, body)
        self._check(request, len(request.prompts))
        check_completion(request)
        max_tokens = request.max_tokens or DEFAULT_COMPLETION_TOKENS
        room = self._room(request, max_tokens)
        prompts = tuple(self._plain_prompt(request, prompt, room) for prompt in request.prompts)
        return self._job(request, prompts, max_tokens, request.logprobs)

    def responses(self, body: bytes) -> Job:
        """The body of POST /v1/responses."""
        request = parse(ResponsesRequest, body)
        self._check(request, 1)
        check_response(request)
        try:
            job = self._chat(as_chat(request))
        except CallerError as error:
            raise renamed(error) from error
        return replace(job, repeated=repeated(request))

    def _check(self, request: SamplingFields, prompts: int) -> None:
        check_model(request.model, self.model.name)
        check_shared(request)
        check_choices(request.n or 1, prompts, self._max_choices)

    def _chat(self, request: ChatRequest) -> Job:
        model, template = self.model, template_of(self.model)
        offer = offer_of(request, model)
        max_tokens = request.max_completion_tokens or request.max_tokens
        text = chat_text(template, request, offer.shown)
        ids = chat_ids(model, template, text, request, self._room(request, max_tokens))
        context = parse_context(model, template, text, request, offer)
        logprobs = (request.top_logprobs or 0) if request.logprobs else None
        job = self._job(request, (Prompt(ids),), max_tokens, logprobs, offer, context)
        options = replace(job.options, reasoning=request.include_reasoning is not False)
        return replace(job, options=options)

    def _room(self, request: SamplingFields, max_tokens: int | None) -> Room:
        tokens, keep = self.model.max_model_len, request.truncate_prompt_tokens
        if keep == -1:
            keep = max(tokens - (max_tokens or 1), 1)
        return Room(tokens, keep)

    def _plain_prompt(
        self, request: CompletionRequest, prompt: str | tuple[int, ...], room: Room
    ) -> Prompt:
        tokenizer = self.model.tokenizer
        if isinstance(prompt, str):
            add_special = request.add_special_tokens is not False
            ids = encode_text(tokenizer, prompt, room, add_special=add_special)
        else:
            check_ids(tokenizer, prompt, "prompt")
            ids = room.fitting(prompt, "prompt")
        if not request.echo:
            return Prompt(ids)
        if isinstance(prompt, str) and room.keep is None:
            return Prompt(ids, prompt)
        return Prompt(ids, tokenizer.decode(ids, skip_special=True))

    def _job(
        self,
        request: SamplingFields,
        prompts: tuple[Prompt, ...],
        max_tokens: int | None,
        logprobs: int | None,
        offer: Offer = NOTHING,
        context: ParseContext = PLAIN,
    ) -> Job:
        n = request.n or 1
        structured = constraint_of(request, offer, context, self.model.tokenizer)
        sampling = tuple(
            params
            for prompt in prompts
            for params in resolve_sampling(
                request,
                max_tokens=max_tokens,
                logprobs=logprobs,
                room=self.model.max_model_len - len(prompt.token_ids),
                n=n,
                vocab_size=self.model.tokenizer.vocab_size,
                structured=structured,
            )
        )
        options = request.stream_options
        return Job(
            prompts=prompts,
            sampling=sampling,
            n=n,
            options=_answer_options(request, logprobs is not None),
            stream=request.stream or False,
            include_usage=options is not None and bool(options.include_usage),
            return_token_ids=request.return_token_ids or False,
            priority=request.priority or 0,
            cache_salt=request.cache_salt or "",
            context=context,
            continuous_usage=options is not None and bool(options.continuous_usage_stats),
        )


def _answer_options(request: SamplingFields, logprobs: bool) -> AnswerOptions:
    return AnswerOptions(
        stop=request.stop or (),
        include_stop=request.include_stop_str_in_output or False,
        skip_special_tokens=request.skip_special_tokens is not False,
        min_tokens=request.min_tokens or 0,
        logprobs=logprobs,
    )
