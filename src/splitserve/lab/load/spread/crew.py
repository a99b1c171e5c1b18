"""Several load processes as one sender."""

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Self

import msgspec

from splitserve.clock import Clock, monotonic
from splitserve.errors import UnavailableError
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.load.spread.process import process_command
from splitserve.lab.load.spread.work import Begin, Ended, Ready, Told, Work, packed, told_in
from splitserve.lifecycle import describe_exit

START_S: Final = 60.0
"""How long a process may take until it is ready."""

_HEADSTART_S: Final = 0.2
"""From the word to the run's start: all have it by then."""

_LINE_BYTES: Final = 1 << 26
"""A record of some million events."""


class LoadProcessLost(UnavailableError):
    """A load process ended before its work: what it had to send is lost, and so is the run."""


class Crew:
    """One process for each part of ``work.split``: ``async with Crew(parts) as crew``, ``begin``,
    ``records``. Leaves no process behind, however it is left. Use from the process's main thread,
    whose end ends them too."""

    def __init__(self, parts: Sequence[Work], clock: Clock = monotonic) -> None:
        self._parts = parts
        self._clock = clock
        self._members: list[Process] = []
        self.origin_s = 0.0

    async def __aenter__(self) -> Self:
        try:
            for _ in self._parts:
                self._members.append(await self._started())
            async with asyncio.timeout(START_S):
                await asyncio.gather(*map(self._readied, self._members, self._parts))
        except TimeoutError as error:
            await self._end()
            raise LoadProcessLost(f"a load process was not ready in {START_S:g} s") from error
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the processes that were started."""
        return tuple(member.pid for member in self._members)

    def now(self) -> float:
        """Seconds since the run's start; negative until it has begun."""
        return self._clock() - self.origin_s

    def begin(self) -> None:
        """Sets the run's start, a moment ahead, and tells all processes."""
        self.origin_s = self._clock() + _HEADSTART_S
        word = msgspec.json.encode(Begin(self.origin_s)) + b"\n"
        for member in self._members:
            assert member.stdin is not None
            member.stdin.write(word)

    async def records(self, keep: Callable[[RequestRecord], None]) -> None:
        """Gives every record as it comes; returns when all processes have ended their work.

        Raises LoadProcessLost as soon as one of them ends before.
        """
        tasks = [asyncio.create_task(self._told(member, keep)) for member in self._members]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _started(self) -> Process:
        return await asyncio.create_subprocess_exec(
            *process_command(), stdin=PIPE, stdout=PIPE, limit=_LINE_BYTES
        )

    async def _readied(self, member: Process, part: Work) -> None:
        assert member.stdin is not None
        with suppress(ConnectionError):
            # One that has ended says so by its silence.
            member.stdin.write(packed(part))
            await member.stdin.drain()
        if not isinstance(await self._next(member), Ready):
            raise LoadProcessLost("a load process began before it was told to")

    async def _told(self, member: Process, keep: Callable[[RequestRecord], None]) -> None:
        while not isinstance(told := await self._next(member), Ended):
            if isinstance(told, RequestRecord):
                keep(told)

    async def _next(self, member: Process) -> Told:
        assert member.stdout is not None
        line = await member.stdout.readline()
        if not line.endswith(b"\n"):
            how = describe_exit(await member.wait())
            raise LoadProcessLost(f"a load process ended before its work: {how}")
        return told_in(line)

    async def _end(self) -> None:
        for member in self._members:
            if member.returncode is None:
                with suppress(ProcessLookupError):
                    member.kill()
        await asyncio.gather(*(member.wait() for member in self._members))
