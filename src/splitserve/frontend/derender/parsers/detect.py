"""Which parsers read a model's answers, told by its chat template.

A template writes earlier turns in the format that the model answers in, so the markers of that
format stand in its source.
"""

from typing import Final, NamedTuple


class ParserNames(NamedTuple):
    """Names in the registry; None where the template shows no format that we know."""

    reasoning: str | None
    tool_calls: str | None


class _Sign(NamedTuple):
    """A parser, and texts that all stand in the templates of models that it reads."""

    parser: str
    texts: tuple[str, ...]


_BAR: Final = "\uff5c"
_UNDER: Final = "\u2581"

# The first that fits counts: the more special come first.
_TOOLS: Final = (
    _Sign("openai", ("<|channel|>",)),
    _Sign("llama4_pythonic", ("<|python_start|>",)),
    _Sign("glm45", ("<arg_key>",)),
    _Sign("qwen3_coder", ("<function=", "<parameter=")),
    _Sign("deepseek_v32", (f"{_BAR}DSML{_BAR}",)),
    _Sign("deepseek_v3", (f"tool{_UNDER}call{_UNDER}begin", "```json")),
    _Sign("deepseek_v31", (f"tool{_UNDER}call{_UNDER}begin",)),
    _Sign("kimi_k2", ("<|tool_calls_section_begin|>",)),
    _Sign("mistral", ("[TOOL_CALLS]",)),
    _Sign("hermes", ("<tool_call>", "arguments")),
    _Sign("pythonic", ("[func_name1(",)),
    _Sign("llama3_json", ("<|python_tag|>", "parameters")),
    _Sign("llama3_json", ("ipython", "parameters")),
)
_REASONING: Final = (
    _Sign("openai_gptoss", ("<|channel|>",)),
    _Sign("mistral", ("[THINK]",)),
    _Sign("glm45", ("</think>", "<|assistant|>", "[gMASK]")),
    _Sign("kimi_k2", ("</think>", "<|im_middle|>")),
    _Sign("deepseek_r1", ("</think>", f"<{_BAR}Assistant{_BAR}>")),
    _Sign("qwen3", ("</think>",)),
    _Sign("qwen3", ("<think>",)),
)


def detect(template: str) -> ParserNames:
    """The parsers for a model with this chat template, given as its source."""
    return ParserNames(_first(_REASONING, template), _first(_TOOLS, template))


def _first(signs: tuple[_Sign, ...], template: str) -> str | None:
    for sign in signs:
        if all(text in template for text in sign.texts):
            return sign.parser
    return None
