"""The ASGI application of a render process: text work, and nothing that needs a worker."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from splitserve.frontend.access import KeyRing, guarded
from splitserve.frontend.process_routes import (
    fingerprint_route,
    http_error,
    model_routes,
    process_routes,
)
from splitserve.frontend.scale_out.openapi import openapi_route
from splitserve.frontend.scale_out.routes import scale_out_routes, tokenize_routes
from splitserve.frontend.scale_out.tier import TextTier


def create_text_app(
    tier: TextTier, registry: CollectorRegistry, access: KeyRing | None = None
) -> ASGIApp:
    """``access`` None lets everybody in. Ends ``tier``'s threads with the application. The tier's
    metrics are registered with ``registry`` here."""
    tier.metrics.register(registry)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        yield
        tier.threads.shutdown(wait=False, cancel_futures=True)

    routes = [
        *scale_out_routes(tier),
        *tokenize_routes(tier),
        *model_routes(tier.model),
        *process_routes(registry, ready=lambda: None),
        fingerprint_route(tier.fingerprint),
    ]
    app = Starlette(
        routes=[*routes, openapi_route(routes)],
        exception_handlers={HTTPException: http_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return guarded(app, access)
