"""A gateway's ASGI application: which path does what."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from splitserve.frontend.access import KeyRing, guarded
from splitserve.frontend.forms import CHAT, COMPLETION, RESPONSE
from splitserve.frontend.generation import GenerationEndpoint, Service
from splitserve.frontend.measures import FrontendMetrics
from splitserve.frontend.process_routes import (
    Fingerprint,
    Ready,
    Warnings,
    fingerprint_route,
    http_error,
    model_routes,
    process_routes,
)
from splitserve.frontend.scale_out.abort import abort_endpoint
from splitserve.frontend.scale_out.generate import TOKENS
from splitserve.frontend.scale_out.openapi import openapi_route
from splitserve.frontend.scale_out.routes import scale_out_routes, tokenize_routes
from splitserve.frontend.scale_out.tier import TextTier
from splitserve.protocol.generator import Generator


def create_app(
    generator: Generator,
    tier: TextTier,
    registry: CollectorRegistry,
    ready: Ready,
    fingerprint: Fingerprint = dict,
    access: KeyRing | None = None,
    warnings: Warnings = tuple,
) -> ASGIApp:
    """``ready`` gives None when a request would succeed now, else the reason why not; ``warnings``
    what is not as the deployment was meant all the same;
    ``fingerprint`` what the engines behind it must agree with. ``access`` None lets everybody in.

    ``registry`` is what /metrics shows; the frontend's own metrics are registered with it here,
    so one registry serves one application. Ends ``tier``'s threads with the application.
    """
    metrics = FrontendMetrics()
    metrics.register(registry)
    tier.metrics.register(registry)
    service = Service(generator, tier.model, tier.config, metrics, tier.threads)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        yield
        tier.threads.shutdown(wait=False, cancel_futures=True)

    generation = {
        "/v1/chat/completions": GenerationEndpoint(service, CHAT),
        "/v1/completions": GenerationEndpoint(service, COMPLETION),
        "/v1/responses": GenerationEndpoint(service, RESPONSE),
        "/inference/v1/generate": GenerationEndpoint(service, TOKENS),
    }
    routes = [
        *(Route(path, endpoint, methods=["POST"]) for path, endpoint in generation.items()),
        abort_endpoint(service.live),
        *scale_out_routes(tier),
        *tokenize_routes(tier),
        *model_routes(tier.model),
        *process_routes(registry, ready, warnings),
        fingerprint_route(tier.fingerprint, fingerprint),
    ]
    app = Starlette(
        routes=[*routes, openapi_route(routes)],
        exception_handlers={HTTPException: http_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        # Starlette wraps every send twice; streams go around it.
        direct = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = generation.get(scope["path"], app) if direct else app
        await endpoint(scope, receive, send)

    return guarded(dispatch, access)
