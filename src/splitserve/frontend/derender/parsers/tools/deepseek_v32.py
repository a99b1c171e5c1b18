"""DeepSeek V3.2's markup language of calls, DSML::

    <|DSML|function_calls>
    <|DSML|invoke name="f">
    <|DSML|parameter name="a" string="true">text</|DSML|parameter>
    <|DSML|parameter name="b" string="false">[1, 2]</|DSML|parameter>
    </|DSML|invoke>
    </|DSML|function_calls>

with U+FF5C for each bar. Format: the encoding scripts that are published with the model. Values
stand as they are between their tags, line breaks included.
"""

import re
from collections.abc import Mapping
from typing import ClassVar, Final

from splitserve.frontend.derender.parsers.tags import (
    AFTER,
    BODY,
    HEAD,
    Expected,
    TagParser,
)
from splitserve.frontend.derender.parsers.typed_args import STRING

_DSML: Final = "\uff5cDSML\uff5c"
_BLOCK: Final = f"<{_DSML}function_calls>"
_BLOCK_END: Final = f"</{_DSML}function_calls>"
_CALL: Final = f"<{_DSML}invoke"
_CALL_END: Final = f"</{_DSML}invoke>"
_PARAMETER: Final = f"<{_DSML}parameter"
_PARAMETER_END: Final = f"</{_DSML}parameter>"

_CALL_TAG: Final = re.compile(rf'{_CALL}\s+name="([^"]+)"\s*>')
_PARAMETER_TAG: Final = re.compile(
    rf'{_PARAMETER}\s+name="([^"]+)"(?:\s+string="(true|false)")?\s*>'
)


class DeepSeekV32(TagParser):
    """A parameter that is marked as a string is one, whatever the schema says; where the mark is
    missing or false the schema tells."""

    markers: ClassVar[tuple[str, ...]] = (
        # A token of its own, which the tags are made of.
        _DSML,
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
    value_ends: ClassVar[tuple[str, ...]] = (_PARAMETER_END,)

    def _read(self, tag: str) -> bool:
        if tag == _CALL_END:
            return self._close(AFTER)
        if tag == _BLOCK_END:
            return self._leave()
        if found := _CALL_TAG.fullmatch(tag):
            return self._open(found[1])
        if found := _PARAMETER_TAG.fullmatch(tag):
            return self._key(found[1], STRING if found[2] == "true" else None)
        return False
