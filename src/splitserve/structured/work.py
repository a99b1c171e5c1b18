"""An estimate of how long the library takes to build a grammar from a JSON schema.

The library has no bound on this. The weights were measured with llguidance 1.9, in microseconds
of one core, and rounded up.
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, Final

from splitserve.errors import CallerError
from splitserve.structured.limits import Limits
from splitserve.structured.regexes import check_regex, regex_work_us

_VALUE_US: Final = 20
_LIST_ENTRY_US: Final = 3
_PATTERN_US: Final = 60
_ALTERNATIVE_US: Final = 100
_MULTIPLE_US: Final = 10
"""For each state of the automaton that divides by ``multipleOf``: one a remainder."""

_MAX_MULTIPLE: Final = 1000

_NUMBERS_US: Final = {
    "minimum": 150,
    "maximum": 150,
    "exclusiveMinimum": 150,
    "exclusiveMaximum": 150,
    "minItems": 200,
    "maxItems": 200,
    "minLength": 20,
    "maxLength": 20,
}

_FORMATS_US: Final = {"date": 100, "time": 100, "uuid": 80, "date-time": 250, "email": 250}
_OTHER_FORMAT_US: Final = 650


def work_us(schema: dict[str, Any], limits: Limits) -> int:
    """Raises CallerError for a regular expression or ``multipleOf`` that is too large in itself."""
    total = 0
    multiples: list[Fraction] = []
    for value in _values(schema):
        if isinstance(value, list):
            total += _LIST_ENTRY_US * len(value)
        elif isinstance(value, str):
            total += len(value) // 50
        elif isinstance(value, dict):
            total += _VALUE_US + sum(_keyword_us(key, value[key], limits) for key in value)
            multiple: Any = value.get("multipleOf")
            if _is_number(multiple) and multiple != 0:
                multiples.append(abs(Fraction(str(multiple))))
        if total > limits.max_work_us:
            return total
    return total + _multiples_us(multiples)


def _values(schema: Any) -> Iterator[Any]:
    """Every value within ``schema``, without recursion."""
    left = [schema]
    while left:
        value = left.pop()
        yield value
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value


def _keyword_us(key: str, value: Any, limits: Limits) -> int:
    if key in _NUMBERS_US:
        # A property may have that name: its schema is no number.
        return _NUMBERS_US[key] if _is_number(value) else 0
    measure = _MEASURES.get(key)
    return 0 if measure is None else measure(value, limits)


def _pattern_us(value: Any, limits: Limits) -> int:
    if not isinstance(value, str):
        return 0
    check_regex(value, limits)
    return _PATTERN_US + regex_work_us(value)


def _format_us(value: Any, limits: Limits) -> int:
    del limits
    return _FORMATS_US.get(value, _OTHER_FORMAT_US) if isinstance(value, str) else 0


def _alternatives_us(value: Any, limits: Limits) -> int:
    del limits
    return _ALTERNATIVE_US * len(value) if isinstance(value, list) else 0


def _properties_us(value: Any, limits: Limits) -> int:
    """Optional ones may follow each other in any choice, which makes pairs of them."""
    del limits
    return len(value) ** 2 // 8 if isinstance(value, dict) else 0


def _pattern_properties_us(value: Any, limits: Limits) -> int:
    """Each two of the patterns are proven to exclude each other."""
    if not isinstance(value, dict):
        return 0
    return 20 * len(value) ** 2 + sum(_pattern_us(pattern, limits) for pattern in value)


_MEASURES: Final[dict[str, Callable[[Any, Limits], int]]] = {
    "pattern": _pattern_us,
    "format": _format_us,
    "properties": _properties_us,
    "patternProperties": _pattern_properties_us,
    "anyOf": _alternatives_us,
    "oneOf": _alternatives_us,
}


def _multiples_us(multiples: list[Fraction]) -> int:
    """Those of an ``allOf`` are joined into one: their least common multiple."""
    states = 1
    for multiple in set(multiples):
        numerator = (multiple * 10 ** _decimals(multiple)).numerator
        states = math.lcm(states, numerator)
        if states > _MAX_MULTIPLE:
            raise CallerError(
                f"has 'multipleOf' values whose common multiple is above {_MAX_MULTIPLE}, "
                "decimal point left out"
            )
    return _MULTIPLE_US * states * len(multiples)


def _decimals(value: Fraction) -> int:
    """Digits after the decimal point."""
    return max(_factors(value.denominator, 2), _factors(value.denominator, 5))


def _factors(number: int, prime: int) -> int:
    count = 0
    while number % prime == 0:
        number //= prime
        count += 1
    return count


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
