"""Body bytes to a Job, for both endpoints."""

from typing import Final

from splitserve.errors import CallerError
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.derender.options import AnswerOptions
from splitserve.frontend.model import ServedModel
from splitserve.frontend.render.job import Job, Prompt
from splitserve.frontend.render.messages import render_chat
from splitserve.frontend.render.prompts import check_ids, encode_text
from splitserve.frontend.render.sampling import resolve_sampling
from splitserve.protocol.openai.chat import ChatRequest
from splitserve.protocol.openai.completions import CompletionRequest
from splitserve.protocol.openai.parse import parse
from splitserve.protocol.openai.sampling import SamplingFields

DEFAULT_COMPLETION_TOKENS: Final = 16


class Renderer:
    """Stateless but for the model. All methods raise CallerError and nothing else."""

    def __init__(self, model: ServedModel, config: FrontendConfig) -> None:
        self._model = model
        self._max_choices = config.max_choices

    def chat(self, body: bytes) -> Job:
        """The body of POST /v1/chat/completions."""
        request = parse(ChatRequest, body)
        self._check(request)
        _check_chat(request)
        max_tokens = request.max_completion_tokens or request.max_tokens
        logprobs = (request.top_logprobs or 0) if request.logprobs else None
        return self._job(request, (self._chat_prompt(request),), max_tokens, logprobs)

    def completion(self, body: bytes) -> Job:
        """The body of POST /v1/completions."""
        request = parse(CompletionRequest, body)
        self._check(request)
        _check_completion(request)
        self._check_choices(request.n or 1, len(request.prompts))
        prompts = tuple(
            self._plain_prompt(prompt, request.echo or False) for prompt in request.prompts
        )
        max_tokens = request.max_tokens or DEFAULT_COMPLETION_TOKENS
        return self._job(request, prompts, max_tokens, request.logprobs)

    def _check(self, request: SamplingFields) -> None:
        if request.model is not None and request.model != self._model.name:
            raise CallerError(
                f"the model '{request.model[:256]}' does not exist here",
                param="model",
                status=404,
                code="model_not_found",
            )
        if request.stream_options is not None and not request.stream:
            raise CallerError("'stream_options' needs 'stream'", param="stream_options")
        _refuse_beside("response_format", (request.response_format or {}).get("type"), "text")
        _refuse_beside("use_beam_search", request.use_beam_search, False)
        self._check_choices(request.n or 1, 1)

    def _check_choices(self, n: int, prompts: int) -> None:
        choices = n * prompts
        if choices > self._max_choices:
            raise CallerError(
                f"'n' times the number of prompts is {choices}; the limit is {self._max_choices}",
                param="n",
            )

    def _chat_prompt(self, request: ChatRequest) -> Prompt:
        template = self._model.template
        if template is None:
            raise CallerError("this model has no chat template", param="messages")
        open_end = request.continue_final_message or False
        add_generation_prompt = request.add_generation_prompt
        text = render_chat(
            template,
            request.messages,
            add_generation_prompt=not open_end
            if add_generation_prompt is None
            else add_generation_prompt,
            continue_final_message=open_end,
            extra=request.chat_template_kwargs or {},
        )
        model = self._model
        return Prompt(encode_text(model.tokenizer, text, model.max_model_len, rendered=True))

    def _plain_prompt(self, prompt: str | tuple[int, ...], echo: bool) -> Prompt:
        tokenizer, max_model_len = self._model.tokenizer, self._model.max_model_len
        if isinstance(prompt, str):
            ids = encode_text(tokenizer, prompt, max_model_len, rendered=False)
            return Prompt(ids, echo=prompt if echo else "")
        ids = check_ids(tokenizer, prompt, max_model_len)
        return Prompt(ids, echo=tokenizer.decode(ids, skip_special=True) if echo else "")

    def _job(
        self,
        request: SamplingFields,
        prompts: tuple[Prompt, ...],
        max_tokens: int | None,
        logprobs: int | None,
    ) -> Job:
        n = request.n or 1
        sampling = tuple(
            params
            for prompt in prompts
            for params in resolve_sampling(
                request,
                max_tokens=max_tokens,
                logprobs=logprobs,
                room=self._model.max_model_len - len(prompt.token_ids),
                n=n,
                vocab_size=self._model.tokenizer.vocab_size,
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
        )


def _answer_options(request: SamplingFields, logprobs: bool) -> AnswerOptions:
    return AnswerOptions(
        stop=request.stop or (),
        include_stop=request.include_stop_str_in_output or False,
        skip_special_tokens=request.skip_special_tokens is not False,
        min_tokens=request.min_tokens or 0,
        logprobs=logprobs,
    )


def _check_chat(request: ChatRequest) -> None:
    if request.top_logprobs is not None and not request.logprobs:
        raise CallerError("'top_logprobs' needs 'logprobs': true", param="top_logprobs")
    _refuse_beside("tool_choice", request.tool_choice, "none")
    _refuse_beside("modalities", request.modalities, ["text"])


def _check_completion(request: CompletionRequest) -> None:
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise CallerError("'best_of' other than 'n' is not supported", param="best_of")
    if request.echo and request.logprobs is not None:
        raise CallerError("'echo' together with 'logprobs' is not supported yet", param="echo")


def _refuse_beside(param: str, value: object, supported: object) -> None:
    if value is not None and value != supported:
        raise CallerError(
            f"'{param}': {value!r:.64} is not supported yet",
            param=param,
            code="unsupported_parameter",
        )
