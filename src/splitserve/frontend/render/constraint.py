"""What an answer is held to: by the client's own words, or because a tool must be called."""

from splitserve.frontend.derender.context import ParseContext
from splitserve.frontend.derender.parsers.registry import reasoning_parser
from splitserve.frontend.render.offer import Offer
from splitserve.frontend.render.structured import (
    NO_THINKING,
    Thinking,
    for_tools,
    resolve_structured,
)
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.protocol.openai.sampling import SamplingFields
from splitserve.protocol.sampling import StructuredOutputs


def constraint_of(
    request: SamplingFields, offer: Offer, context: ParseContext, tokenizer: Tokenizer
) -> StructuredOutputs | None:
    """None where the answer is free. A call that must be made comes before any other form.

    Raises CallerError for a form that cannot be held.
    """
    thinking = thinking_of(context, tokenizer)
    asked = resolve_structured(request, thinking)
    if offer.choice not in ("required", "named"):
        return asked
    functions = [tool.function for tool in offer.tools]
    name = functions[0].name if offer.choice == "named" else None
    return for_tools(functions, name=name, parallel=context.parallel, thinking=thinking)


def thinking_of(context: ParseContext, tokenizer: Tokenizer) -> Thinking:
    """What the answer may hold before the constraint begins."""
    if context.reasoning is None or context.thinking == "closed":
        return NO_THINKING
    kind, is_open = reasoning_parser(context.reasoning), context.thinking == "open"
    return Thinking(
        begin=() if is_open else tokenizer.encode_rendered(kind.begin),
        end=tokenizer.encode_rendered(kind.end),
        open=is_open,
    )
