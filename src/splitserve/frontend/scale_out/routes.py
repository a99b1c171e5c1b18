"""Which path does what."""

from collections.abc import Callable
from typing import Final

from starlette.routing import Route

from splitserve.frontend.model import ServedModel
from splitserve.frontend.render.pipeline import Renderer
from splitserve.frontend.scale_out.derender_batch import BatchDerender
from splitserve.frontend.scale_out.derender_stream import StreamDerender
from splitserve.frontend.scale_out.endpoint import Serve, SessionEndpoint, TextEndpoint
from splitserve.frontend.scale_out.render_service import RenderService
from splitserve.frontend.scale_out.requests import Manner, decode
from splitserve.frontend.scale_out.tier import Kind, TextTier
from splitserve.frontend.tokenize import detokenize, tokenize

_BASES: Final[dict[Kind, str]] = {"chat": "chat/completions", "completion": "completions"}


def scale_out_routes(tier: TextTier) -> list[Route]:
    """Render and derender, each for POST, under vLLM's paths; sessions beside them."""
    render = RenderService(tier.model, Renderer(tier.model, tier.config))
    batch = BatchDerender(tier)
    renders: dict[str, Serve] = {
        "chat/completions/render": render.chat,
        "completions/render": render.completion,
        "responses/render": render.responses,
    }
    derenders: dict[Kind, Serve] = {
        "chat": _by_manner(batch.chat, StreamDerender(tier, "chat").piece),
        "completion": _by_manner(batch.completion, StreamDerender(tier, "completion").piece),
    }
    endpoints: dict[str, TextEndpoint | SessionEndpoint] = {
        name: TextEndpoint(tier, name, serve, checks=False) for name, serve in renders.items()
    }
    for kind, serve in derenders.items():
        name = f"{_BASES[kind]}/derender"
        endpoints[name] = TextEndpoint(tier, name, serve, checks=True)
        endpoints[f"{name}/session"] = SessionEndpoint(tier, f"{name}/session", kind)
    return [
        Route(f"/v1/{name}", endpoint, methods=["POST"]) for name, endpoint in endpoints.items()
    ]


def tokenize_routes(tier: TextTier) -> list[Route]:
    """vLLM's POST /tokenize and /detokenize."""
    calls = {"tokenize": tokenize, "detokenize": detokenize}
    return [
        Route(
            f"/{name}",
            TextEndpoint(tier, name, _of_model(tier.model, call), checks=False),
            methods=["POST"],
        )
        for name, call in calls.items()
    ]


def _of_model(model: ServedModel, call: Callable[[ServedModel, bytes], bytes]) -> Serve:
    def serve(body: bytes, _: str) -> bytes:
        return call(model, body)

    return serve


def _by_manner(whole: Callable[[bytes], bytes], piece: Callable[[bytes], bytes]) -> Serve:
    """A derender's two kinds of body come on one path."""

    def serve(body: bytes, _: str) -> bytes:
        return piece(body) if decode(Manner, body).stream else whole(body)

    return serve
