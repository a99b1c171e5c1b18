"""A client that leaves takes its work with it; a client that is slow delays nobody."""

import json
import socket
from collections.abc import Iterator
from itertools import count

import httpx
import pytest

from frontend.conftest import Serve
from frontend.scripted import Gate, ScriptedGenerator, Step, chunks
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.ids import RequestId
from splitserve.protocol.generate import GenerateRequest, TokenChunk


def request(port: int, **fields: object) -> socket.socket:
    body = json.dumps({"prompt": "x", "max_tokens": 400, **fields}).encode()
    connection = socket.socket()
    # Small, so that a client which does not read is soon felt.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", port))
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    connection.sendall(head + body)
    return connection


@pytest.mark.parametrize("n", [1, 3])
def test_leaving_a_stream_closes_the_iterators(serve: Serve, tokenizer: Tokenizer, n: int) -> None:
    ids = tokenizer.encode_prompt("The lazy dog")

    def script(request: GenerateRequest) -> Iterator[Step]:
        yield from chunks(ids, finish=None)
        yield Gate()

    generator = ScriptedGenerator(script)
    live = serve(generator)
    with request(live.port, stream=True, n=n) as connection:
        assert b"200 OK" in connection.recv(4096)
    assert [generator.ended.get(timeout=10)[1] for _ in range(n)] == ["closed"] * n


def test_leaving_before_a_whole_answer_closes_the_iterator(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    begun: Gate = Gate()

    def script(request: GenerateRequest) -> Iterator[Step]:
        begun.set_result(None)
        yield Gate()

    generator = ScriptedGenerator(script)
    connection = request(serve(generator).port)
    begun.result(timeout=10)
    connection.close()
    assert generator.ended.get(timeout=10)[1] == "closed"


def test_a_client_that_does_not_read_delays_nobody(serve: Serve, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_prompt("The lazy dog") * 100

    def script(request: GenerateRequest) -> Iterator[Step]:
        if request.sampling.seed == 1:
            for index in count():
                yield TokenChunk(RequestId("r"), index, (ids[index % len(ids)],))
        yield from chunks(ids[:3])

    generator = ScriptedGenerator(script)
    live = serve(generator)
    with request(live.port, stream=True, seed=1) as slow:
        assert slow.recv(10)
        answer = httpx.post(
            live.url + "/v1/completions", json={"prompt": "x", "seed": 2}, timeout=20
        )
        assert answer.json()["usage"]["completion_tokens"] == 3
        assert generator.ended.get(timeout=10)[1] == "complete"
    assert generator.ended.get(timeout=10)[1] == "closed"
