"""``<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>``.

Format: chat templates of GLM-4.5 and 4.6, with line breaks between the tags, and of GLM-4.7 and
later, without. The type of a value is the schema's to tell.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from splitserve.frontend.derender.parsers.tags import (
    BODY,
    CONTENT,
    HEAD,
    VALUE,
    Expected,
    TagParser,
)

_CALL: Final = "<tool_call>"
_CALL_END: Final = "</tool_call>"
_KEY: Final = "<arg_key>"
_KEY_END: Final = "</arg_key>"
_VALUE: Final = "<arg_value>"
_VALUE_END: Final = "</arg_value>"

_IN_KEY: Final = "key"
_AFTER_KEY: Final = "after key"


class Glm45(TagParser):
    """A call is certain with its first key or its end: until then, text may be its tool's name."""

    markers: ClassVar[tuple[str, ...]] = (_CALL, _CALL_END, _KEY, _KEY_END, _VALUE, _VALUE_END)
    blocks: ClassVar[tuple[str, ...]] = (_CALL,)
    expected: ClassVar[Mapping[str, Expected]] = {
        HEAD: Expected((_KEY, _CALL_END), text=True),
        _IN_KEY: Expected((_KEY_END,), text=True),
        _AFTER_KEY: Expected((_VALUE,)),
        BODY: Expected((_KEY, _CALL_END)),
    }
    value_ends: ClassVar[tuple[str, ...]] = (_VALUE_END,)

    def _read(self, tag: str) -> bool:
        if self._state == HEAD and not self._named(self._before.strip()):
            return False
        match tag:
            case "<arg_key>":
                self._state = _IN_KEY
            case "</arg_key>":
                if not self._key(self._before.strip()):
                    return False
                self._state = _AFTER_KEY
            case "<arg_value>":
                self._state = VALUE
            case _:
                return self._close(CONTENT)
        return True

    def _named(self, name: str) -> bool:
        # A name is one word: prose between the tags is none.
        return len(name.split()) == 1 and self._open(name)
