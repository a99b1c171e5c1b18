"""What the client's original request means for how its answer is read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from splitserve.errors import CallerError
from splitserve.frontend.derender.context import ParseContext, thinking_after
from splitserve.frontend.derender.options import AnswerOptions
from splitserve.frontend.derender.pipeline import PLAIN
from splitserve.frontend.model import ServedModel
from splitserve.frontend.render.chat import chat_text, parse_context, template_of
from splitserve.frontend.render.offer import offer_of
from splitserve.frontend.scale_out.requests import given
from splitserve.protocol.openai.chat import ChatRequest
from splitserve.protocol.openai.completions import CompletionRequest
from splitserve.protocol.openai.parse import parse
from splitserve.protocol.openai.sampling import SamplingFields
from splitserve.protocol.scale_out import StreamOptions, TokenIds

# More than any marker of reasoning and the whitespace after it.
_PROMPT_END_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """Without a request: the text as it is. ``echo`` is text to give before the answer's own."""

    options: AnswerOptions = field(default_factory=AnswerOptions)
    context: ParseContext = PLAIN
    return_token_ids: bool = False
    echo: str = ""
    stream_options: StreamOptions = field(default_factory=StreamOptions)

    def shown_ids(self, ids: TokenIds | None) -> TokenIds | None:
        """The prompt's ids where the client asked to see token ids."""
        return (ids or ()) if self.return_token_ids else None


def asked_chat(model: ServedModel, raw: msgspec.Raw, ids: TokenIds | None) -> Asked:
    """``raw`` is ``chat_request``, ``ids`` are the prompt's.

    Raises CallerError when it is wrong, or missing where a parser needs it: without it nobody knows
    the tools, and an answer read as plain text would show the model's markup as content.
    """
    parsers = model.parsers
    if not given(raw):
        if parsers.reasoning is not None or parsers.tool_calls is not None:
            raise CallerError(
                "'chat_request' is required: this model's answers are parsed "
                f"(reasoning: {parsers.reasoning}, tool calls: {parsers.tool_calls})",
                param="chat_request",
                code="missing_required_parameter",
            )
        return Asked()
    with _within("chat_request"):
        request = parse(ChatRequest, bytes(raw))
        context = _context(model, request, ids)
    return _asked(request, context, reasoning=request.include_reasoning is not False)


def asked_completion(
    model: ServedModel, raw: msgspec.Raw, ids: TokenIds | None, place: int | None
) -> Asked:
    """``raw`` is ``completion_request``; ``place`` says which of its prompts, None that nobody
    knows. Completions are never parsed. Raises CallerError when it is wrong."""
    if not given(raw):
        return Asked()
    with _within("completion_request"):
        request = parse(CompletionRequest, bytes(raw))
    echo = _echo(model, request, ids, place) if request.echo else ""
    return _asked(request, PLAIN, reasoning=True, echo=echo)


def require_prompt_ids(model: ServedModel, ids: TokenIds | None) -> None:
    """Raises CallerError when nobody gave the prompt's ids of a streamed chat that is parsed: they
    tell whether the prompt left a block of reasoning open."""
    parsers = model.parsers
    if ids is None and (parsers.reasoning is not None or parsers.tool_calls is not None):
        raise CallerError(
            "'prompt_token_ids' is required with the first chunk: this model's answers are parsed, "
            "and only the prompt tells whether it left a block of reasoning open",
            param="prompt_token_ids",
            code="missing_required_parameter",
        )


def _asked(
    request: SamplingFields, context: ParseContext, *, reasoning: bool, echo: str = ""
) -> Asked:
    options = request.stream_options
    return Asked(
        options=AnswerOptions(
            stop=request.stop or (),
            include_stop=request.include_stop_str_in_output or False,
            skip_special_tokens=request.skip_special_tokens is not False,
            min_tokens=request.min_tokens or 0,
            reasoning=reasoning,
        ),
        context=context,
        return_token_ids=request.return_token_ids or False,
        echo=echo,
        stream_options=StreamOptions()
        if options is None
        else StreamOptions(options.include_usage, options.continuous_usage_stats),
    )


def _context(model: ServedModel, request: ChatRequest, ids: TokenIds | None) -> ParseContext:
    offer, parsers = offer_of(request, model), model.parsers
    if parsers.reasoning is not None and (ids is None or request.continue_final_message):
        # The prompt's end is to be seen in its text alone.
        template = template_of(model)
        text = chat_text(template, request, offer.shown)
        return parse_context(model, template, text, request, offer)
    return ParseContext(
        reasoning=parsers.reasoning,
        tool_calls=parsers.tool_calls,
        thinking=thinking_after(prompt_end(model, ids), parsers.reasoning),
        choice=offer.choice,
        tools=offer.specs,
        parallel=request.parallel_tool_calls is not False,
    )


def prompt_end(model: ServedModel, ids: TokenIds | None) -> str:
    """The prompt's last words: enough to see whether it left a block of reasoning open."""
    return model.tokenizer.decode((ids or ())[-_PROMPT_END_TOKENS:], skip_special=False)


def _echo(
    model: ServedModel, request: CompletionRequest, ids: TokenIds | None, place: int | None
) -> str:
    prompts = request.prompts
    if place is None and len(prompts) == 1:
        place = 0
    prompt = prompts[place] if place is not None and place < len(prompts) else ids or ()
    if isinstance(prompt, str):
        return prompt
    return model.tokenizer.decode(prompt, skip_special=True)


@contextmanager
def _within(name: str) -> Iterator[None]:
    """Errors of a body within the body name the field from the outside."""
    try:
        yield
    except CallerError as error:
        raise CallerError(
            f"'{name}': {error.message}",
            param=name if error.param is None else f"{name}.{error.param}",
            status=error.status,
            code=error.code,
        ) from error
