"""The tools a request offers to the model, and how it may use them."""

from dataclasses import dataclass
from typing import Any, Final

from splitserve.errors import CallerError
from splitserve.frontend.derender.parsers.base import ToolSpec
from splitserve.frontend.model import ServedModel
from splitserve.protocol.openai.chat import ChatRequest
from splitserve.protocol.openai.tools import Choice, Tool, ToolChoice


@dataclass(frozen=True, slots=True)
class Offer:
    """``shown`` are the tools as the template prints them, ``tools`` those that may be called: with
    choice ``named`` that one alone, with ``none`` nothing."""

    choice: Choice
    shown: tuple[dict[str, Any], ...] = ()
    tools: tuple[Tool, ...] = ()

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What a parser of the answer must know of them."""
        return tuple(
            ToolSpec(tool.function.name, tool.function.parameters or {}) for tool in self.tools
        )


NOTHING: Final = Offer("none")


def offer_of(request: ChatRequest, model: ServedModel) -> Offer:
    """Raises CallerError where choice and tools, or tools and model, do not fit each other."""
    tools = tuple(request.tools or ())
    choice = request.tool_choice or ToolChoice("auto" if tools else "none")
    if choice.mode == "none":
        return NOTHING
    if not tools:
        raise CallerError("'tool_choice' needs 'tools'", param="tool_choice")
    if choice.mode == "auto":
        _check_auto(model)
    allowed = tools if choice.name is None else _named(tools, choice.name)
    return Offer(choice.mode, tuple(tool.shown() for tool in tools), allowed)


def _named(tools: tuple[Tool, ...], name: str) -> tuple[Tool, ...]:
    found = tuple(tool for tool in tools if tool.function.name == name)
    if not found:
        raise CallerError(
            f"'tool_choice': there is no tool {name[:64]!r} in 'tools'", param="tool_choice"
        )
    return found


def _check_auto(model: ServedModel) -> None:
    """Left to itself, the model must know of the tools, and we must know a call when we see one."""
    if model.template is not None and not model.template.habits.tools:
        cause = "this model's chat template does not show tools to the model"
    elif model.parsers.tool_calls is None:
        cause = "the form of this model's tool calls is not known here"
    else:
        return
    raise CallerError(
        f"'tools': {cause}, so 'tool_choice' cannot be \"auto\": "
        'set it to "required", to a function, or to "none"',
        param="tools",
        code="tools_not_supported",
    )
