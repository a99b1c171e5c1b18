"""How a process that the lab started is stopped."""

import asyncio
from contextlib import suppress


async def end(process: asyncio.subprocess.Process, within_s: float) -> None:
    """SIGTERM, and SIGKILL where that takes longer; nothing for one that has ended already."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
