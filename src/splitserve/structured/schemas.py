"""JSON schemas: read within limits, and set up for the library."""

import json
import re
from typing import Any, Final, NoReturn

from splitserve.errors import CallerError
from splitserve.structured.limits import Limits, check_depth, check_text, check_work
from splitserve.structured.loops import check_finite
from splitserve.structured.work import work_us

MAX_WHITESPACE: Final = 64
"""Characters of white space at one place. Models that may write any number of them can fall into
writing nothing else until ``max_tokens``; indented JSON needs a line break and its indentation."""

_BRACKETS: Final = re.compile(r"[\[\]{}]")

_MAX_DIGITS: Final = 300

_OPTIONS: Final = {
    # Schemas made from tagged unions say oneOf where their alternatives exclude each other anyway.
    "coerce_one_of": True,
    "whitespace_pattern": rf"[ \t\r\n]{{1,{MAX_WHITESPACE}}}",
}

_OPTIONS_KEY: Final = "x-guidance"
"""Where the library looks for options, at the top of a schema. A client's own have no effect."""


def schema_rule(text: str, limits: Limits) -> str:
    """The right side of a grammar's rule for JSON that conforms to the schema in ``text``.

    Raises CallerError for what is no schema, is too large, or what no finite JSON conforms to.
    ``oneOf`` is read as ``anyOf``.
    """
    schema = read_json(text, limits)
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise CallerError("must be a JSON schema: an object, or true")
    check_work(work_us(schema, limits), limits)
    check_finite(schema)
    return f"%json {json.dumps({**schema, _OPTIONS_KEY: _OPTIONS}, allow_nan=False)}"


def read_json(text: str, limits: Limits) -> Any:
    """Raises CallerError for a text that is not JSON, too long or too deep."""
    check_text(text, limits.max_bytes)
    # Brackets within strings count too; no schema has so many of them that this matters.
    check_depth(text, _BRACKETS, limits)
    try:
        return json.loads(text, parse_constant=_no_number, parse_int=_whole, parse_float=_finite)
    except ValueError as error:
        raise CallerError(f"is not valid JSON: {error}") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _whole(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number has more than {_MAX_DIGITS} digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is out of range")
    return value
