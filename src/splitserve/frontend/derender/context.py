"""What derendering must know of the request: which parsers read its answer, and how it began."""

from typing import Literal

import msgspec

from splitserve.frontend.derender.parsers.base import (
    CallIds,
    Parser,
    Thinking,
    ToolSpec,
)
from splitserve.frontend.derender.parsers.chain import Chain
from splitserve.frontend.derender.parsers.forced import NamedCall, RequiredCalls
from splitserve.frontend.derender.parsers.harmony import Harmony
from splitserve.frontend.derender.parsers.registry import (
    is_harmony,
    reasoning_parser,
    tool_parser,
)

ToolChoice = Literal["none", "auto", "required", "named"]


class ParseContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """``reasoning`` and ``tool_calls`` are parsers' names, None where nothing is parsed.

    With choice ``required`` the answer is held to a JSON list of calls, with ``named`` to the
    arguments of the only tool in ``tools``: neither is in the model's own format.
    With ``parallel`` False only the first call counts.
    """

    reasoning: str | None = None
    tool_calls: str | None = None
    thinking: Thinking = "closed"
    choice: ToolChoice = "none"
    tools: tuple[ToolSpec, ...] = ()
    parallel: bool = True

    @property
    def parses(self) -> bool:
        return self.reasoning is not None or self.choice != "none"

    @property
    def markers(self) -> frozenset[str]:
        """Texts that must be seen even where they are special tokens."""
        found: frozenset[str] = frozenset()
        if self.reasoning is not None:
            found |= frozenset(reasoning_parser(self.reasoning).markers)
        if self.choice == "auto" and self.tool_calls is not None:
            found |= frozenset(tool_parser(self.tool_calls).markers)
        return found


def build_parser(context: ParseContext, call_ids: CallIds) -> Parser | None:
    """The parser of one answer; None where all of it is content.

    Raises ConfigError for a parser's name that is none.
    """
    tools = _tool_stage(context, call_ids)
    if context.reasoning is None or isinstance(tools, Harmony):
        return tools
    reasoning: Parser
    if is_harmony(context.reasoning):
        reasoning = Harmony((), call_ids)
    else:
        reasoning = reasoning_parser(context.reasoning)(context.thinking)
    return reasoning if tools is None else Chain(reasoning, tools)


def _tool_stage(context: ParseContext, call_ids: CallIds) -> Parser | None:
    match context.choice:
        case "auto" if context.tool_calls is not None:
            return tool_parser(context.tool_calls)(context.tools, call_ids)
        case "required":
            return RequiredCalls(context.tools, call_ids)
        case "named":
            return NamedCall(context.tools, call_ids)
        case _:
            return None


def thinking_after(prompt_end: str, reasoning: str | None) -> Thinking:
    """How the prompt's last characters leave a model with this reasoning parser."""
    if reasoning is None:
        return "closed"
    kind = reasoning_parser(reasoning)
    end = prompt_end.rstrip()
    if end.endswith(kind.begin):
        return "open"
    return "closed" if end.endswith(kind.end) else "start"
