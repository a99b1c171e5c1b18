"""The model of a server, or in one line why there is none to name."""

import pytest

from splitserve.bench.served_model import served_model
from splitserve.errors import UnavailableError
from splitserve.lab.mock.script import Script, Send
from splitserve.lab.mock.server import MockServer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def answering(body: bytes) -> MockServer:
    return MockServer(lambda request_id, asked: Script((Send(0.0, HEAD % len(body) + body),)))


async def test_the_first_model_is_named() -> None:
    async with answering(b'{"data": [{"id": "a"}, {"id": "b"}]}') as server:
        assert await served_model(server.url) == "a"


@pytest.mark.parametrize("body", [b'{"data": []}', b"{}", b"[]", b"null", b"{"])
async def test_a_list_in_another_form_is_no_model(body: bytes) -> None:
    async with answering(body) as server:
        with pytest.raises(UnavailableError, match="tells no model"):
            await served_model(server.url)


async def test_where_nobody_listens_nothing_answers() -> None:
    async with answering(b"{}") as server:
        url = server.url
    with pytest.raises(UnavailableError, match="nothing answers"):
        await served_model(url)
