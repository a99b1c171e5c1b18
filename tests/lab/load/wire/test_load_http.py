"""One connection, its bytes handed to it by the test; and the pool that keeps connections."""

import asyncio
from itertools import count

from splitserve.lab.load.wire.http import Connection
from splitserve.lab.load.wire.pool import IDLE_LIMIT_S, Pool
from splitserve.lab.load.wire.target import resolve
from splitserve.lab.mock.script import Script
from splitserve.lab.mock.server import MockServer

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd"


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.ended = "close"

    def abort(self) -> None:
        self.ended = "abort"


class Heard:
    def __init__(self, log: list[tuple[str, float]]) -> None:
        self.log = log

    def on_head(self, t_s: float, status: int, headers: dict[str, str]) -> None:
        self.log.append((f"head {status} {headers['content-length']}", t_s))

    def on_body(self, t_s: float, data: bytes) -> None:
        self.log.append((f"body {data.decode()}", t_s))

    def on_end(self, t_s: float) -> None:
        self.log.append(("end", t_s))

    def on_lost(self, t_s: float, error: str) -> None:
        self.log.append((f"lost {error}", t_s))


class Ticking:
    """Every reading of the clock is one second after the one before."""

    def __init__(self) -> None:
        self.readings = count()

    def __call__(self) -> float:
        return float(next(self.readings))


def opened(clock: Ticking, idle: list[Connection]) -> tuple[Connection, FakeTransport]:
    connection, transport = Connection(clock, idle.append), FakeTransport()
    connection.connection_made(transport)
    return connection, transport


async def test_every_read_is_stamped_before_any_is_parsed() -> None:
    clock, log, idle = Ticking(), list[tuple[str, float]](), list[Connection]()
    (first, _), (second, _) = opened(clock, idle), opened(clock, idle)
    first.start(b"", Heard(log))
    second.start(b"", Heard(log))
    first.data_received(RESPONSE[:-2])
    second.data_received(RESPONSE)
    first.data_received(RESPONSE[-2:])
    assert log == []
    await asyncio.sleep(0)
    assert log == [
        ("head 200 4", 4.0),
        ("body ab", 4.0),
        ("body cd", 6.0),
        ("end", 6.0),
        ("head 200 4", 5.0),
        ("body abcd", 5.0),
        ("end", 5.0),
    ]
    assert idle == [first, second]


async def test_what_came_before_the_connection_was_lost_is_heard_first() -> None:
    log = list[tuple[str, float]]()
    connection, transport = opened(Ticking(), [])
    connection.start(b"asked", Heard(log))
    connection.data_received(RESPONSE[:-2])
    connection.connection_lost(ConnectionResetError("reset"))
    await asyncio.sleep(0)
    assert transport.written == [b"asked"]
    assert [what for what, _ in log] == [
        "head 200 4",
        "body ab",
        "lost ConnectionResetError: reset",
    ]


async def test_what_is_no_http_loses_the_connection() -> None:
    log = list[tuple[str, float]]()
    connection, transport = opened(Ticking(), [])
    connection.start(b"", Heard(log))
    connection.data_received(b"SSH-2.0\r\n")
    await asyncio.sleep(0)
    assert log[0][0].startswith("lost malformed HTTP")
    assert (connection.closed, transport.ended, len(log)) == (True, "abort", 1)


async def test_an_aborted_exchange_hears_nothing_more() -> None:
    log = list[tuple[str, float]]()
    connection, _ = opened(Ticking(), [])
    connection.start(b"", Heard(log))
    connection.data_received(RESPONSE)
    connection.abort()
    await asyncio.sleep(0)
    connection.connection_lost(None)
    assert log == []


async def test_bytes_that_nobody_asked_for_are_dropped() -> None:
    idle = list[Connection]()
    connection, _ = opened(Ticking(), idle)
    connection.data_received(RESPONSE)
    await asyncio.sleep(0)
    assert (connection.busy, idle) == (False, [])


async def test_a_connection_is_kept_no_longer_than_servers_keep_theirs() -> None:
    now = [0.0]
    async with MockServer(lambda *_: Script(())) as server:
        pool = Pool(await resolve(server.url), lambda: now[0])
        first = await pool.take()
        pool.give_back(first)
        assert await pool.take() is first
        pool.give_back(first)
        now[0] = IDLE_LIMIT_S + 0.1
        second = await pool.take()
        assert second is not first
        assert first.closed
        pool.close()
        assert second.closed
