"""GET /openapi.json: what can be asked, made from the types that check what is asked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Any, Final

import msgspec
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from splitserve import __version__
from splitserve.errors import BugError
from splitserve.frontend.scale_out.requests import (
    NOT_GIVEN,
    ChatAnswer,
    CompletionAnswer,
    Piece,
    SessionStart,
)
from splitserve.protocol.openai.body import Body
from splitserve.protocol.openai.chat import ChatRequest
from splitserve.protocol.openai.completions import CompletionRequest
from splitserve.protocol.openai.errors import ErrorBody
from splitserve.protocol.openai.responses import ResponsesRequest
from splitserve.protocol.openai.tokenize import Detokenize, TokenizeChat, TokenizeText
from splitserve.protocol.scale_out import GenerateBody

PATH: Final = "/openapi.json"

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_REF: Final = "#/components/schemas/{}"
_USER: Final = {"role": "user", "content": "Hello"}
_TOKEN_ANSWER: Final = {"choices": [{"index": 0, "token_ids": [1, 2], "finish_reason": "stop"}]}


class Abort(msgspec.Struct, frozen=True):
    """The body of POST /inference/v1/abort_requests."""

    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A path that takes POST. ``bodies`` are the forms its body may have, ``example`` one that is
    right; ``answers`` are the media types of its answer."""

    summary: str
    bodies: tuple[type, ...]
    example: Mapping[str, Any]
    answers: tuple[str, ...] = (_JSON,)
    takes: str = _JSON


def _derender(kind: str, whole: type, example: Mapping[str, Any]) -> dict[str, Call]:
    return {
        f"/v1/{kind}/derender": Call("Token ids to text", (whole, Piece), example),
        f"/v1/{kind}/derender/session": Call(
            "Token ids to text as they come: a line that opens the session, then a line a chunk",
            (SessionStart,),
            {},
            answers=(_EVENTS,),
            takes="application/x-ndjson",
        ),
    }


_CHAT: Final = {"messages": [_USER], "max_tokens": 8}
_COMPLETION: Final = {"prompt": "Hello", "max_tokens": 8}
_RESPONSE: Final = {"input": "Hello", "max_output_tokens": 8}
_BOTH: Final = (_JSON, _EVENTS)

CALLS: Final[Mapping[str, Call]] = {
    "/v1/chat/completions": Call("Answer a chat", (ChatRequest,), _CHAT, _BOTH),
    "/v1/completions": Call("Continue a prompt", (CompletionRequest,), _COMPLETION, _BOTH),
    "/v1/responses": Call("Answer, as the Responses API", (ResponsesRequest,), _RESPONSE, _BOTH),
    "/inference/v1/generate": Call(
        "Token ids in, token ids out",
        (GenerateBody,),
        {"request_id": "r", "token_ids": [1, 2], "sampling_params": {"max_tokens": 8}},
        _BOTH,
    ),
    "/inference/v1/abort_requests": Call("Give answers up", (Abort,), {"request_ids": ["r"]}, ()),
    "/v1/chat/completions/render": Call("A chat to token ids", (ChatRequest,), _CHAT),
    "/v1/completions/render": Call("Prompts to token ids", (CompletionRequest,), _COMPLETION),
    "/v1/responses/render": Call("A response's input to ids", (ResponsesRequest,), _RESPONSE),
    **_derender("chat/completions", ChatAnswer, {"generate_response": _TOKEN_ANSWER}),
    **_derender("completions", CompletionAnswer, {"generate_responses": [_TOKEN_ANSWER]}),
    "/tokenize": Call("Text or a chat to ids", (TokenizeText, TokenizeChat), {"prompt": "Hello"}),
    "/detokenize": Call("Token ids to text", (Detokenize,), {"tokens": [1, 2]}),
}


def openapi_route(routes: Iterable[BaseRoute]) -> Route:
    """Describes ``routes`` and itself. The first to ask waits for it to be made."""
    described = [route for route in routes if isinstance(route, Route)]

    @cache
    def made() -> bytes:
        return msgspec.json.encode(document(described))

    async def openapi(_: Request) -> Response:
        return Response(made(), media_type=_JSON)

    described.append(Route(PATH, openapi))
    return described[-1]


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """An OpenAPI 3.1 document. Raises BugError for a path that takes POST and is not in CALLS."""
    schemas = _Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        name = route.path.replace(":path}", "}")
        posts = "POST" in (route.methods or ())
        paths[name] = {"post": _post(name, schemas)} if posts else {"get": _get(name)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Splitserve", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas.found,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        # A server that was started without keys asks for none.
        "security": [{}, {"key": []}],
    }


@dataclass(slots=True)
class _Schemas:
    """Schemas by the names under which they are referred to."""

    found: dict[str, Any] = field(default_factory=lambda: _of_struct(ErrorBody))

    def of(self, kind: type) -> dict[str, str]:
        """A reference to ``kind``'s schema."""
        if issubclass(kind, Body):
            _, made = models_json_schema(
                [(kind, "validation")], ref_template=_REF.format("{model}")
            )
            self.found.update(made["$defs"])
        else:
            self.found.update(_of_struct(kind))
        return {"$ref": _REF.format(kind.__name__)}


def _of_struct(kind: type) -> dict[str, Any]:
    _, found = msgspec.json.schema_components([_open(kind)], ref_template=_REF.format("{name}"))
    return found


def _open(kind: type) -> type:
    """``kind`` with any JSON where its fields are decoded later; those have no schema."""
    fields: list[tuple[str, type | UnionType | Any, Any]] = []
    for each in msgspec.structs.fields(kind):
        raw = each.default is NOT_GIVEN
        default = msgspec.field(default=None if raw else each.default, name=each.encode_name)
        if each.required:
            default = msgspec.field(name=each.encode_name)
        elif each.default is msgspec.NODEFAULT:
            default = msgspec.field(default_factory=each.default_factory, name=each.encode_name)
        fields.append((each.name, Any if raw else each.type, default))
    made = msgspec.defstruct(kind.__name__, fields, frozen=True)
    made.__doc__ = kind.__doc__
    return made


def _post(path: str, schemas: _Schemas) -> dict[str, Any]:
    call = CALLS.get(path)
    if call is None:
        raise BugError(f"{path} is not described")
    forms = [schemas.of(kind) for kind in call.bodies]
    body: dict[str, Any] = {
        "schema": forms[0] if len(forms) == 1 else {"anyOf": forms},
        "example": call.example,
    }
    answer: dict[str, Any] = {"description": "The answer"}
    if call.answers:
        answer["content"] = {media: {} for media in call.answers}
    return {
        "summary": call.summary,
        "requestBody": {"required": True, "content": {call.takes: body}},
        "responses": {"200": answer, "default": _failure()},
    }


def _get(path: str) -> dict[str, Any]:
    names = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    found: dict[str, Any] = {"responses": {"200": {"description": "OK"}, "default": _failure()}}
    return {**found, "parameters": parameters} if parameters else found


def _failure() -> dict[str, Any]:
    content = {_JSON: {"schema": {"$ref": _REF.format(ErrorBody.__name__)}}}
    return {"description": "What is wrong, in OpenAI's form", "content": content}
