"""Parsers by name. Names are vLLM's."""

from typing import Final, cast

from splitserve.errors import ConfigError
from splitserve.frontend.derender.parsers.base import ReasoningParser, ToolParser
from splitserve.loading import load

HARMONY: Final = "splitserve.frontend.derender.parsers.harmony:Harmony"
_REASONING: Final = "splitserve.frontend.derender.parsers.reasoning"
_TOOLS: Final = "splitserve.frontend.derender.parsers.tools"

REASONING_PARSERS: Final = {
    "deepseek_r1": f"{_REASONING}.think:ThinkTags",
    "qwen3": f"{_REASONING}.think:ThinkTags",
    "glm45": f"{_REASONING}.think:ThinkTags",
    "kimi_k2": f"{_REASONING}.think:ThinkTags",
    "mistral": f"{_REASONING}.mistral:MistralThink",
    "openai_gptoss": HARMONY,
}

TOOL_PARSERS: Final = {
    "hermes": f"{_TOOLS}.hermes:Hermes",
    "llama3_json": f"{_TOOLS}.llama3_json:Llama3Json",
    "mistral": f"{_TOOLS}.mistral:Mistral",
    "deepseek_v3": f"{_TOOLS}.deepseek_v3:DeepSeekV3",
    "deepseek_v31": f"{_TOOLS}.deepseek_v31:DeepSeekV31",
    "deepseek_v32": f"{_TOOLS}.deepseek_v32:DeepSeekV32",
    "kimi_k2": f"{_TOOLS}.kimi_k2:KimiK2",
    "qwen3_coder": f"{_TOOLS}.qwen3_coder:Qwen3Coder",
    "glm45": f"{_TOOLS}.glm45:Glm45",
    "pythonic": f"{_TOOLS}.pythonic:Pythonic",
    "llama4_pythonic": f"{_TOOLS}.pythonic:Llama4Pythonic",
    "openai": HARMONY,
}

NONE: Final = "none"
AUTO: Final = "auto"


def reasoning_parser(name: str) -> type[ReasoningParser]:
    """Raises ConfigError for a name that is none."""
    return cast(type[ReasoningParser], load(_target(REASONING_PARSERS, name, "reasoning parser")))


def tool_parser(name: str) -> type[ToolParser]:
    """Raises ConfigError for a name that is none."""
    return cast(type[ToolParser], load(_target(TOOL_PARSERS, name, "tool call parser")))


def is_harmony(name: str | None) -> bool:
    """Whether ``name`` is one half of Harmony, whose one parser does both."""
    return HARMONY in (REASONING_PARSERS.get(name or ""), TOOL_PARSERS.get(name or ""))


def _target(table: dict[str, str], name: str, kind: str) -> str:
    try:
        return table[name]
    except KeyError:
        raise ConfigError(f"there is no {kind} {name!r}: {', '.join(table)}") from None
