"""CPU of the router for each streamed token: ``python tests/router/measure_tokens.py [STEP_MS]``.

A worker in a process of its own sends one StepTokens frame with a token for each of 64 streams
every 20 ms (or STEP_MS); this process reads them through the router and does nothing with them.
Prints one line for each event loop.
"""

import asyncio
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from scripted_worker import ScriptedWorker, chunk_of, prompt

from splitserve.protocol.codec import Message
from splitserve.protocol.control import Submit
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.orchestrator import Router

STREAMS = 64
TOKENS = 250
STEP_MS = 20.0


async def work(folder: Path, step_s: float) -> None:
    """The worker: waits for all streams, then one frame a step."""
    begun = asyncio.Event()

    def on_order(worker: ScriptedWorker, message: Message) -> None:
        if len(worker.all(Submit)) == STREAMS:
            begun.set()

    worker = await ScriptedWorker(
        folder, "c0", "colocated", free=100_000, on_order=on_order
    ).start()
    loop = asyncio.get_running_loop()
    while True:
        await begun.wait()
        begun.clear()
        names = [submit.request.request_id for submit in worker.all(Submit)]
        worker.received.clear()
        start = loop.time()
        for index in range(TOKENS):
            last = "length" if index == TOKENS - 1 else None
            worker.tokens(*(chunk_of(name, index, finish=last) for name in names))
            await asyncio.sleep(start + (index + 1) * step_s - loop.time())


def work_forever(folder: str, step_s: float) -> None:
    asyncio.run(work(Path(folder), step_s))


async def read(router: Router, name: str) -> int:
    count = 0
    async for chunk in router.generate(prompt(name, max_tokens=TOKENS)):
        count += len(chunk.token_ids)
    return count


async def measure(folder: str, label: str) -> None:
    router = Router(RouterConfig(), [f"unix:{folder}/c0.sock"], gateway="g")
    await router.start()
    while router.ready() is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    before, begun = time.process_time(), time.monotonic()
    counts = await asyncio.gather(*(read(router, f"{label}{n}") for n in range(STREAMS)))
    cpu, wall = time.process_time() - before, time.monotonic() - begun
    await router.close()
    assert counts == [TOKENS] * STREAMS
    tokens = sum(counts)
    print(f"{label}: {1e6 * cpu / tokens:.2f} us CPU per token, {tokens / wall:.0f} tokens/s")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ss") as folder:
        step_s = float(sys.argv[1] if len(sys.argv) > 1 else STEP_MS) / 1000
        worker = multiprocessing.get_context("spawn").Process(
            target=work_forever, args=(folder, step_s)
        )
        worker.start()
        try:
            asyncio.run(measure(folder, "asyncio"))
            uvloop.run(measure(folder, "uvloop"))
        finally:
            worker.terminate()
            worker.join()


if __name__ == "__main__":
    main()
