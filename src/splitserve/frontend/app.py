"""The ASGI application: which path does what."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from splitserve import __version__
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.failures import http_failure
from splitserve.frontend.forms import CHAT, COMPLETION
from splitserve.frontend.generation import GenerationEndpoint, Service
from splitserve.frontend.measures import FrontendMetrics
from splitserve.frontend.model import ServedModel
from splitserve.protocol.generate import Generator
from splitserve.protocol.openai.models import model_card, model_list

Ready = Callable[[], str | None]
_Handler = Callable[[Request], Awaitable[Response]]
_PROMETHEUS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


def create_app(
    generator: Generator,
    model: ServedModel,
    config: FrontendConfig,
    registry: CollectorRegistry,
    ready: Ready,
) -> ASGIApp:
    """``ready`` gives None when a request would succeed now, else the reason why not.

    ``registry`` is what /metrics shows; the frontend's own metrics are registered with it here,
    so one registry serves one application.
    """
    metrics = FrontendMetrics()
    metrics.register(registry)
    threads = ThreadPoolExecutor(config.render_threads, thread_name_prefix="render")
    service = Service(generator, model, config, metrics, threads)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        yield
        threads.shutdown(wait=False, cancel_futures=True)

    generation = {
        "/v1/chat/completions": GenerationEndpoint(service, CHAT),
        "/v1/completions": GenerationEndpoint(service, COMPLETION),
    }
    app = Starlette(
        routes=[
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in generation.items()),
            *_model_routes(model),
            *_process_routes(registry, ready),
        ],
        exception_handlers={HTTPException: _http_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        # Starlette wraps every send twice; streams go around it.
        direct = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = generation.get(scope["path"], app) if direct else app
        await endpoint(scope, receive, send)

    return dispatch


def _model_routes(model: ServedModel) -> list[Route]:
    card = model_card(model.name, model.created, model.max_model_len)

    async def models(_: Request) -> Response:
        return JSONResponse(model_list([card]))

    async def one(request: Request) -> Response:
        if request.path_params["name"] == model.name:
            return JSONResponse(card)
        return _error(404, "this model does not exist here", "model_not_found")

    return [Route("/v1/models", models), Route("/v1/models/{name:path}", one)]


def _process_routes(registry: CollectorRegistry, ready: Ready) -> list[Route]:
    async def health(_: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def readiness(_: Request) -> Response:
        reason = ready()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "reason": reason}, status_code=503)

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


async def _http_error(request: Request, error: Exception) -> Response:
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
