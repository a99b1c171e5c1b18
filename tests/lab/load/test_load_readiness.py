"""An endpoint that is still starting is waited for, and one that never serves is not for ever."""

import pytest

from splitserve.clock import monotonic
from splitserve.errors import UnavailableError
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.readiness import wait_until_serving
from splitserve.lab.load.request import Asking, LoadRequest
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.target import resolve
from splitserve.lab.mock.case import DONE, completion, event, script_of, total
from splitserve.lab.mock.script import Ending, Script, Send
from splitserve.lab.mock.server import MockServer

PROBE = LoadRequest("probe", (101,), 1)


def refusal(status: int) -> Script:
    return Script((Send(0.0, b"HTTP/1.1 %d No\r\nContent-Length: 4\r\n\r\nwait" % status),))


async def client_of(url: str) -> LoadClient:
    labels = Labels("A", "1", monotonic())
    return LoadClient(await resolve(url), Asking("m"), labels, Limits())


async def test_refusals_are_waited_out_until_an_answer_comes() -> None:
    answer = script_of([event(completion("a", 1, "stop")), total(1), DONE], pace_s=0.0)
    said = {
        "probe-1": Script((), Ending.RESET),
        "probe-2": refusal(404),
        "probe-3": refusal(503),
        "probe-4": answer,
    }
    async with MockServer(lambda name, _: said[name]) as server:
        client = await client_of(server.url)
        record = await wait_until_serving(client, PROBE, 30.0, pause_s=0.0)
        client.close()
    assert record.request_id == "probe-4"


async def test_the_last_refusal_is_told_when_patience_ends() -> None:
    async with MockServer(lambda *_: refusal(503)) as server:
        client = await client_of(server.url)
        with pytest.raises(UnavailableError, match="http_error: wait"):
            await wait_until_serving(client, PROBE, 20.0, pause_s=20.0)
        client.close()
