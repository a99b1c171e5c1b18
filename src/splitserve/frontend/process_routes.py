"""What every HTTP process of ours answers beside its work: models, liveness, metrics, version."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from splitserve import __version__
from splitserve.frontend.failures import http_failure
from splitserve.frontend.fingerprint import short_fingerprint
from splitserve.frontend.model import ServedModel
from splitserve.protocol.openai.models import model_card, model_list

Ready = Callable[[], str | None]
"""None when a request would succeed now, else the reason why not."""

Warnings = Callable[[], Sequence[str]]
"""What is not as the deployment was meant, a line each, whether or not requests succeed."""

Fingerprint = Callable[[], Mapping[str, str]]

_Handler = Callable[[Request], Awaitable[Response]]
_PROMETHEUS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


def model_routes(model: ServedModel) -> list[Route]:
    card = model_card(model.name, model.created, model.max_model_len)

    async def models(_: Request) -> Response:
        return JSONResponse(model_list([card]))

    async def one(request: Request) -> Response:
        if request.path_params["name"] == model.name:
            return JSONResponse(card)
        return _error(404, "this model does not exist here", "model_not_found")

    return [Route("/v1/models", models), Route("/v1/models/{name:path}", one)]


def process_routes(
    registry: CollectorRegistry, ready: Ready, warnings: Warnings = tuple
) -> list[Route]:
    """``registry`` is what /metrics shows."""

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def readiness(_: Request) -> Response:
        reason, warned = ready(), list(warnings())
        if reason is None:
            return JSONResponse({"status": "ready", "warnings": warned})
        answer = {"status": "not ready", "reason": reason, "warnings": warned}
        return JSONResponse(answer, status_code=503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=_PROMETHEUS_TEXT)

    async def version(_: Request) -> Response:
        return JSONResponse({"version": __version__})

    handlers: dict[str, _Handler] = {
        "/health": health,
        "/ready": readiness,
        "/metrics": metrics,
        "/version": version,
    }
    return [Route(path, handler) for path, handler in handlers.items()]


def fingerprint_route(text: Mapping[str, str], other: Fingerprint = dict) -> Route:
    """GET /fingerprint: ``{"text": short hash, "parts": {...}}``. ``text`` is text_fingerprint's;
    ``other`` gives the parts that may change while the process lives (its engines')."""
    short = short_fingerprint(text)

    async def fingerprint(_: Request) -> Response:
        return JSONResponse({"text": short, "parts": {**other(), **text}})

    return Route("/fingerprint", fingerprint)


async def http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and wrong methods, in OpenAI's form."""
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 405:
        message = f"{request.method} is not allowed on {request.url.path}"
        return _error(405, message, "method_not_allowed", error.headers)
    if error.status_code == 404:
        return _error(404, f"there is no {request.url.path}", "not_found")
    return _error(error.status_code, error.detail, "http_error", error.headers)


def _error(
    status: int, message: str, code: str, headers: Mapping[str, str] | None = None
) -> Response:
    body = http_failure(status, message, code)
    return Response(body, status, headers, media_type="application/json")
