"""What /ready says of a process that serves, and of one that does not yet."""

import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from splitserve.frontend.process_routes import process_routes


@pytest.mark.parametrize(
    ("reason", "status", "body"),
    [
        (None, 200, {"status": "ready", "warnings": ["p0: not connected"]}),
        (
            "no worker is usable",
            503,
            {
                "status": "not ready",
                "reason": "no worker is usable",
                "warnings": ["p0: not connected"],
            },
        ),
    ],
    ids=["serves", "does not"],
)
async def test_ready_lists_what_is_not_as_it_was_meant(
    reason: str | None, status: int, body: dict[str, object]
) -> None:
    routes = process_routes(CollectorRegistry(), lambda: reason, lambda: ["p0: not connected"])
    transport = httpx.ASGITransport(Starlette(routes=routes))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.get("/ready")
    assert (answer.status_code, answer.json()) == (status, body)
