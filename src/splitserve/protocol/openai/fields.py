"""Field types that requests share. Each refuses with one message, whatever forms it accepts.

JSON null always means "not given", so every field of a request is optional here and its default
is chosen where the request is rendered.
"""

from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, PlainValidator
from pydantic_core import PydanticCustomError

MAX_STOP_STRINGS: Final = 16
MAX_STOP_CHARS: Final = 1024
MAX_LOGIT_BIAS: Final = 1024
MAX_LOGIT_BIAS_WEIGHT: Final = 100.0
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def wrong(message: str) -> PydanticCustomError:
    """An error whose text reaches the client as it is (braces and all)."""
    return PydanticCustomError("invalid_value", "{message}", {"message": message})


def _not_supported(value: Any) -> None:
    if value is None or value in ([], {}):
        return
    raise PydanticCustomError("unsupported", "not supported yet")


def _prompts(value: Any) -> "tuple[str | tuple[int, ...], ...]":
    """``"a"``, ``["a", "b"]``, ``[1, 2]`` and ``[[1], [2]]`` all become a tuple of prompts."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise wrong("must be a string, a list of strings, token ids, or a list of token id lists")
    if not value:
        raise wrong("must not be empty")
    if isinstance(value[0], str):
        return tuple(_text(item) for item in value)
    if isinstance(value[0], list):
        return tuple(_token_ids(item) for item in value)
    return (_token_ids(value),)


def _text(item: Any) -> str:
    if not isinstance(item, str):
        raise wrong("must hold strings only, token ids only, or token id lists only")
    if not item:
        raise wrong("must not be empty")
    return item


def _token_ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise wrong("must hold strings only, token ids only, or token id lists only")
    if not value:
        raise wrong("must not be empty")
    if set(map(type, value)) != {int}:
        raise wrong("token ids must be integers")
    if min(value) < 0 or max(value) > INT32_MAX:
        raise wrong("token ids must not be negative or beyond 32 bits")
    return tuple(value)


def _stop_strings(value: Any) -> tuple[str, ...]:
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(item, str) for item in strings):
        raise wrong("must be a string or a list of strings")
    if len(strings) > MAX_STOP_STRINGS:
        raise wrong(f"must hold at most {MAX_STOP_STRINGS} strings")
    if not all(0 < len(item) <= MAX_STOP_CHARS for item in strings):
        raise wrong(f"each stop string must have 1 to {MAX_STOP_CHARS} characters")
    return tuple(strings)


def _logit_bias(value: Any) -> dict[int, float]:
    if not isinstance(value, dict):
        raise wrong("must be an object of token id to bias")
    if len(value) > MAX_LOGIT_BIAS:
        raise wrong(f"must hold at most {MAX_LOGIT_BIAS} entries")
    return {_bias_token(key): _bias_weight(weight) for key, weight in value.items()}


def _bias_token(key: str) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) <= 10):
        raise wrong("keys must be token ids")
    return int(key)


def _bias_weight(weight: Any) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise wrong("biases must be numbers")
    if not abs(weight) <= MAX_LOGIT_BIAS_WEIGHT:
        raise wrong("biases must lie between -100 and 100")
    return float(weight)


def _not_zero(value: int) -> int:
    if value == 0:
        raise wrong("must be -1 or at least 1")
    return value


Unsupported = Annotated[Any, AfterValidator(_not_supported)]
Prompts = Annotated[tuple[str | tuple[int, ...], ...], PlainValidator(_prompts)]
StopStrings = Annotated[tuple[str, ...], PlainValidator(_stop_strings)]
LogitBias = Annotated[dict[int, float], PlainValidator(_logit_bias)]
TokenId = Annotated[int, Field(ge=0, le=INT32_MAX)]
Count = Annotated[int, Field(ge=1, le=INT32_MAX)]
Penalty = Annotated[float, Field(ge=-2.0, le=2.0)]
Truncation = Annotated[int, Field(ge=-1, le=INT32_MAX), AfterValidator(_not_zero)]
