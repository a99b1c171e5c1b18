"""A long answer as a reasoning model with tools writes it, in token ids."""

import json
from dataclasses import dataclass
from typing import Final

from splitserve.frontend.derender.context import ParseContext
from splitserve.frontend.derender.parsers.base import ToolSpec
from splitserve.frontend.tokenizer import Tokenizer

_PROSE: Final = (
    "First look at what the user wants: a table of 3 rows and 2 columns, sorted by date. "
    'Then check whether a < b holds for all rows; if so, the answer is {"ok": true}. '
    "Größe, naïve and 東京 are words too. 🙂\n"
)
_CODE: Final = 'def area(w: float, h: float) -> float:\n\treturn "w" if w < h else w * h\n'
_FILES: Final = ToolSpec(
    "write_file",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
        "required": ["path", "text"],
    },
)


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """``token_ids`` of an answer and what its parsers must know."""

    token_ids: tuple[int, ...]
    context: ParseContext


def long_answer(tokenizer: Tokenizer, tokens: int) -> LongAnswer:
    """Half reasoning, a quarter text, and a call with one long argument, cut after ``tokens``.

    Reasoning in think tags, the call in the Hermes format.
    """
    thoughts = _cut(tokenizer, _PROSE, tokens // 2)
    text = _cut(tokenizer, _PROSE, tokens // 4)
    code = _CODE * (tokens // 8)
    call = json.dumps({"name": _FILES.name, "arguments": {"path": "a.py", "text": code}})
    whole = f"<think>{thoughts}</think>{text}<tool_call>\n{call}\n</tool_call>"
    return LongAnswer(
        tokenizer.encode_rendered(whole)[:tokens],
        ParseContext(
            reasoning="deepseek_r1",
            tool_calls="hermes",
            thinking="start",
            choice="auto",
            tools=(_FILES,),
        ),
    )


def _cut(tokenizer: Tokenizer, sentence: str, tokens: int) -> str:
    each = len(tokenizer.encode_rendered(sentence))
    return sentence * max(1, tokens // each)
