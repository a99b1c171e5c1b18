"""Bodies of the derender calls, decoded. Names are vLLM's."""

import re
from typing import Final, TypeVar

import msgspec

from splitserve.errors import CallerError
from splitserve.protocol.scale_out import (
    Count,
    GenerateAnswer,
    GenerateChunk,
    StreamOptions,
    TokenIds,
)

Kind = TypeVar("Kind")

_PLACE: Final = re.compile(r" - at `\$\.?(.*)`$")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.+)`")
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")

# A place for JSON that is decoded later, or never.
NOT_GIVEN: Final = msgspec.Raw()


class Manner(msgspec.Struct, frozen=True):
    """Which of an endpoint's two kinds of body this is."""

    stream: bool | None = False


class ChatAnswer(msgspec.Struct, frozen=True):
    """A whole chat answer. ``request`` (``chat_request``) is the client's, as JSON."""

    generate_response: GenerateAnswer
    model: str | None = None
    prompt_tokens: Count | None = None
    prompt_token_ids: TokenIds | None = None
    request: msgspec.Raw = msgspec.field(default=NOT_GIVEN, name="chat_request")


class CompletionAnswer(msgspec.Struct, frozen=True):
    """Whole completions: one answer a prompt. ``request`` is ``completion_request``."""

    generate_responses: tuple[GenerateAnswer, ...]
    model: str | None = None
    prompt_tokens: tuple[Count, ...] | None = None
    prompt_token_ids: tuple[TokenIds | None, ...] | None = None
    request: msgspec.Raw = msgspec.field(default=NOT_GIVEN, name="completion_request")


class Piece(msgspec.Struct, frozen=True):
    """One chunk of an answer. What later calls may repeat is only read by the first, so that a call
    costs no more than its chunk."""

    generate_chunk: GenerateChunk
    model: str | None = None
    stream_state: msgspec.Raw = NOT_GIVEN
    prompt_tokens: Count | None = None
    prompt_token_ids: msgspec.Raw = NOT_GIVEN
    chat_request: msgspec.Raw = NOT_GIVEN
    completion_request: msgspec.Raw = NOT_GIVEN


class SessionStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a session; chunks follow. A chunk in its place must not pass for one.

    ``stream_options`` are the request's own where they are not given here.
    """

    model: str | None = None
    request_id: str | None = None
    prompt_tokens: Count | None = None
    prompt_token_ids: TokenIds | None = None
    stream_options: StreamOptions | None = None
    chat_request: msgspec.Raw = NOT_GIVEN
    completion_request: msgspec.Raw = NOT_GIVEN


def decode(kind: type[Kind], body: bytes | msgspec.Raw) -> Kind:
    """Raises CallerError that names the field; never shows the body's own content."""
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise CallerError("the body is nested too deeply", code="invalid_json") from None
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except msgspec.DecodeError as error:
        raise CallerError(f"the body is not valid JSON: {error}", code="invalid_json") from None


def given(raw: msgspec.Raw) -> bool:
    """Whether the field is there and not null."""
    return bytes(raw) not in (b"", b"null")


def _invalid(message: str) -> CallerError:
    place = _PLACE.search(message)
    path = place[1] if place is not None else ""
    reason = _PLACE.sub("", message)
    missing = _MISSING.match(reason)
    if missing is not None:
        path = f"{path}.{missing[1]}" if path else missing[1]
        return CallerError(f"'{path}' is required", param=path, code="missing_required_parameter")
    unknown = _UNKNOWN.match(reason)
    if unknown is not None:
        return CallerError(f"'{unknown[1]}' is no field of this object", param=unknown[1])
    if not path:
        return CallerError("the body must be a JSON object")
    return CallerError(f"'{path}': {reason}", param=path, code="invalid_value")
