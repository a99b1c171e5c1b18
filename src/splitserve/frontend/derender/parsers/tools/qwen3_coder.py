"""``<tool_call><function=f><parameter=a>1</parameter></function></tool_call>``.

Format: chat templates of Qwen3-Coder, Qwen3.5 and NVIDIA's Nemotron 3. Values stand on lines of
their own; their type is the schema's to tell.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from splitserve.frontend.derender.parsers.tags import (
    AFTER,
    BODY,
    HEAD,
    Expected,
    TagParser,
)

_BLOCK: Final = "<tool_call>"
_BLOCK_END: Final = "</tool_call>"
_CALL: Final = "<function="
_CALL_END: Final = "</function>"
_PARAMETER: Final = "<parameter="
_PARAMETER_END: Final = "</parameter>"


class Qwen3Coder(TagParser):
    """The model at times leaves out the block's begin, its end or the function's end: none of them
    is needed."""

    markers: ClassVar[tuple[str, ...]] = (
        _BLOCK,
        _BLOCK_END,
        _CALL,
        _CALL_END,
        _PARAMETER,
        _PARAMETER_END,
    )
    blocks: ClassVar[tuple[str, ...]] = (_BLOCK,)
    bare: ClassVar[str | None] = _CALL
    expected: ClassVar[Mapping[str, Expected]] = {
        HEAD: Expected((_CALL,)),
        BODY: Expected((_PARAMETER, _CALL_END, _BLOCK_END)),
        AFTER: Expected((_CALL, _BLOCK_END)),
    }
    value_ends: ClassVar[tuple[str, ...]] = (f"\n{_PARAMETER_END}", _PARAMETER_END)
    newlines: ClassVar[bool] = True

    def _read(self, tag: str) -> bool:
        if tag == _CALL_END:
            return self._close(AFTER)
        if tag == _BLOCK_END:
            return self._leave()
        if tag.startswith(_CALL):
            return self._open(tag[len(_CALL) : -1].strip())
        return self._key(tag[len(_PARAMETER) : -1].strip())
