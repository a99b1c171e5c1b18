"""Arguments that models write, as text and as the values they stand for."""

from typing import Any, Final

OSLO: Final = '{"city": "Oslo"}'
NESTED: Final = (
    '{"rows": [[1, -2.5e3], [], {"a": {"b": [true, false, null]}}],\n  "deep": {"x": [{"y": {}}]}}'
)
NESTED_VALUE: Final[Any] = {
    "rows": [[1, -2500.0], [], {"a": {"b": [True, False, None]}}],
    "deep": {"x": [{"y": {}}]},
}
UNICODE: Final = '{"text": "naïve 한국어 😀 \\ud83d\\ude00 \u2028 \\"quoted\\" \\\\ \\n"}'
UNICODE_VALUE: Final[Any] = {"text": 'naïve 한국어 😀 😀 \u2028 "quoted" \\ \n'}
RAW_LINES: Final = '{"code": "if x:\n\treturn\r\n"}'
RAW_LINES_TEXT: Final = '{"code": "if x:\\n\\treturn\\r\\n"}'
CUT: Final = '{"city": "Os'
