"""Who is there and who may be used: connecting, losing, coming back, agreeing, linking."""

import asyncio
import socket

import pytest
from router_bench import Answer, Bench, HandClock, until
from scripted_worker import ScriptedWorker, answer_whole, load_of, prompt

from splitserve.errors import ConfigError
from splitserve.protocol.codec import FrameDecoder, encode
from splitserve.protocol.control import Hello, Pair, Submit
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.orchestrator import Router


async def test_ready_says_why_not_until_a_worker_has_reported(bench: Bench) -> None:
    worker = ScriptedWorker(bench.folder, "c0", "colocated")
    bench.workers.append(worker)
    router = await bench.router(calm=False)
    reason = router.ready()
    assert reason is not None
    assert worker.address in reason
    assert "not connected" in reason
    await worker.start()
    await until(lambda: router.ready() is None)
    assert worker.all(Hello) == [Hello("g")]
    worker.report(draining=True)
    await until(lambda: router.ready() is not None)
    assert router.ready() == "no worker is usable: c0: draining"


async def test_no_worker_at_all_is_not_ready(bench: Bench) -> None:
    router = await bench.router()
    assert router.ready() == "no worker is registered"


async def test_decode_alone_is_ready_and_the_missing_prefill_is_counted(bench: Bench) -> None:
    p = await bench.worker("p0", "prefill")
    await bench.worker("d0", "decode", linked=("p0",), on_order=answer_whole)
    router = await bench.router()
    await p.stop()
    await until(lambda: router.warnings() != [])
    assert router.ready() is None
    assert router.warnings() == ["p0: not connected"]
    answer = await Answer(router, prompt("r", max_tokens=2)).ended()
    assert len(answer.tokens) == 2
    assert bench.notes.fallbacks == [("local", "no_prefill")]


async def test_prefill_workers_are_asked_to_link_again_until_decode_says_they_are(
    bench: Bench,
) -> None:
    p = await bench.worker("p0", "prefill")
    d = await bench.worker("d0", "decode")
    router = await bench.router(calm=False)
    assert await p.expect(Pair) == Pair(d.name, "unix:/links/d0")
    await until(lambda: router.warnings() == ["d0: prefill worker p0 is not linked"])
    router.tick()
    assert len(p.all(Pair)) == 1
    bench.clock.advance(1.0)
    router.tick()
    await p.expect(Pair, 1)
    d.linked = ("p0",)
    d.report()
    await until(lambda: router.warnings() == [])
    bench.clock.advance(1.0)
    router.tick()
    p.report(steps=1)
    await until(lambda: (load := router.snapshot()[0].load) is not None and load.steps == 1)
    assert len(p.all(Pair)) == 2
    d.hang_up()
    await p.expect(Pair, 2)


@pytest.mark.parametrize("back", ["p0", "d0"])
async def test_a_worker_that_comes_back_is_linked_again_at_once(bench: Bench, back: str) -> None:
    router, p, d = await bench.split()
    await p.expect(Pair)
    {"p0": p, "d0": d}[back].hang_up()
    await p.expect(Pair, 1)
    await until(lambda: router.warnings() == [])


async def test_workers_with_different_connectors_are_not_paired(bench: Bench) -> None:
    p = await bench.worker("p0", "prefill", connector="tcp")
    await bench.worker("d0", "decode", connector="shm")
    router = await bench.router()
    assert router.ready() is None
    assert p.all(Pair) == []


async def test_a_worker_that_disagrees_is_not_used_and_the_reason_names_key_and_values(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    good = await bench.worker("c0", "colocated", fingerprint={"dtype": "bf16"})
    router = await bench.router(fingerprint={"model": "m1"})
    bad = await bench.worker("c1", "colocated", fingerprint={"dtype": "fp32"})
    other = await bench.worker("c2", "colocated", fingerprint={"model": "m2"})
    for worker in (bad, other):
        router.workers.add(worker.address)
    await until(lambda: len(router.warnings()) == 2 and "dtype" in router.warnings()[0])
    await until(lambda: "model" in router.warnings()[1])
    assert router.warnings() == [
        "c1: fingerprint differs: dtype is 'fp32', 'bf16' at c0",
        "c2: fingerprint differs: model is 'm2', 'm1' at this gateway",
    ]
    assert "c1 is not used: fingerprint differs: dtype" in caplog.text
    answers = [Answer(router, prompt(f"r{n}")) for n in range(4)]
    await good.expect(Submit, 3)
    assert not bad.all(Submit)
    for answer in answers:
        await answer.leave()
    await good.stop()
    await other.stop()
    await until(lambda: router.warnings() == ["c0: not connected", "c2: not connected"])
    assert router.ready() is None


async def test_ready_shows_the_disagreement_when_nothing_else_is_usable(bench: Bench) -> None:
    await bench.worker("c0", "colocated", fingerprint={"model": "m2"})
    router = await bench.router(calm=False, fingerprint={"model": "m1"})
    await until(lambda: "model is 'm2', 'm1' at this gateway" in (router.ready() or ""))


async def test_a_restarted_worker_is_used_again_and_gets_no_aborts_of_its_last_life(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    router, c = await bench.colocated()
    answer = Answer(router, prompt("r"))
    await c.expect(Submit)
    await c.stop()
    await answer.ended()
    assert answer.error is not None
    assert router.ready() is not None
    c.incarnation, c.on_order = "life-2", answer_whole
    await c.start()
    await until(lambda: router.ready() is None)
    again = await Answer(router, prompt("s")).ended()
    assert len(again.tokens) == 8
    assert c.aborted() == []
    assert "c0 connected, in a new life" in caplog.text


async def test_a_worker_that_only_lost_its_connection_is_told_what_to_forget(
    bench: Bench,
) -> None:
    router, c = await bench.colocated()
    answer = Answer(router, prompt("r"))
    await c.expect(Submit)
    c.hang_up()
    await answer.ended()
    await until(lambda: router.ready() is None)
    await until(lambda: c.aborted() == ["r"])
    assert router.ledger.empty


async def test_bytes_that_are_no_frame_end_the_connection_and_it_is_made_anew(
    bench: Bench,
) -> None:
    router, c = await bench.colocated()
    answer = Answer(router, prompt("r"))
    await c.expect(Submit)
    c.send_bytes(b"HTTP/1.1 200 OK\r\n\r\n")
    await answer.ended()
    assert answer.error is not None
    await c.expect(Hello, 1)
    await until(lambda: router.ready() is None)


async def test_a_second_worker_of_the_same_name_is_not_let_in(bench: Bench) -> None:
    router, _ = await bench.colocated()
    await until(lambda: router.ready() is None)
    namesake = ScriptedWorker(bench.folder, "c0-twin", "colocated")
    namesake.name = bench.workers[0].name
    bench.workers.append(await namesake.start())
    router.workers.add(namesake.address)
    await namesake.expect(Hello, 1)
    assert router.ready() is None
    assert router.snapshot()[1].unusable in ("not connected", "has not said who it is")


async def test_a_worker_that_does_not_say_who_it_is_is_tried_again(bench: Bench) -> None:
    class Mute(ScriptedWorker):
        def heard(self, message: object) -> None:
            self.received.append(message)  # type: ignore[arg-type]
            self._news.set()

    mute = Mute(bench.folder, "c0", "colocated")
    bench.workers.append(await mute.start())
    router = await bench.router(calm=False)
    await mute.expect(Hello)
    assert "has not said who it is" in (router.ready() or "")
    bench.clock.advance(2000)
    router.tick()
    router.tick()
    await mute.expect(Hello, 1)


async def test_a_load_that_overtakes_welcome_is_no_reason_to_hang_up(bench: Bench) -> None:
    class Hasty(ScriptedWorker):
        def heard(self, message: object) -> None:
            if isinstance(message, Hello):
                self.report()
            super().heard(message)  # type: ignore[arg-type]

    worker = Hasty(bench.folder, "c0", "colocated")
    bench.workers.append(await worker.start())
    router = await bench.router()
    assert router.ready() is None
    assert len(worker.all(Hello)) == 1


async def test_a_removed_worker_loses_its_requests_and_is_forgotten(bench: Bench) -> None:
    c0 = await bench.worker("c0", "colocated")
    c1 = await bench.worker("c1", "colocated")
    router = await bench.router()
    answer = Answer(router, prompt("r"))
    await c0.expect(Submit)
    await router.workers.remove(c0.address)
    await c1.expect(Submit)
    assert [snapshot.worker for snapshot in router.snapshot()] == ["c1"]
    await answer.leave()


async def test_an_address_is_registered_once_and_must_have_a_form_we_speak(
    bench: Bench,
) -> None:
    router, c = await bench.colocated()
    with pytest.raises(ConfigError, match="given twice"):
        router.workers.add(c.address)
    with pytest.raises(ConfigError, match="neither unix:/path nor tcp:host:port"):
        router.workers.add("http://somewhere")


async def test_a_snapshot_shows_each_workers_blocks_and_none_of_the_absent(bench: Bench) -> None:
    router, c = await bench.colocated()
    answer = Answer(router, prompt("r"))
    await c.expect(Submit)
    (there,) = router.snapshot()
    assert (there.worker, there.role, there.in_flight, there.unusable) == ("c0", "colocated", 1, "")
    assert there.kv is not None
    assert there.kv.total == 1000
    await c.stop()
    await answer.ended()
    (gone,) = router.snapshot()
    assert (gone.worker, gone.connected, gone.kv, gone.load) == ("c0", False, None, None)


async def test_tcp_workers_are_reached_as_well(bench: Bench) -> None:
    script = ScriptedWorker(bench.folder, "c0", "colocated")
    said: list[object] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder()
        while data := await reader.read(65536):
            said.extend(decoder.feed(data))
            writer.write(encode(script.welcome()) + encode(load_of()))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, family=socket.AF_INET)
    port = server.sockets[0].getsockname()[1]
    router = Router(RouterConfig(), [f"tcp:127.0.0.1:{port}"], gateway="g", clock=HandClock())
    await router.start()
    await until(lambda: router.ready() is None)
    assert said == [Hello("g")]
    await router.close()
    server.close()
    await server.wait_closed()
