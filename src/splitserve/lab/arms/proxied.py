"""A single arm behind a proxy that does nothing: what the way through one more process costs."""

import asyncio
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from splitserve.clock import monotonic
from splitserve.errors import UnavailableError
from splitserve.lab.arms.asking import not_serving
from splitserve.lab.arms.base import Described, Endpoint
from splitserve.lab.arms.ending import end
from splitserve.lab.arms.tied import tied_command
from splitserve.lab.arms.topology import TopologyArm
from splitserve.launch.ports import free_ports
from splitserve.lifecycle import describe_exit

_START_S: Final = 30.0
_STOP_S: Final = 10.0
_POLL_S: Final = 0.05


class ProxiedArm:
    """Implements ``base.Arm``: ``inner``, asked through a relay in a process of its own.

    It is described by its servers; requests alone go through the proxy. ``folder`` takes the
    proxy's log.
    """

    def __init__(self, inner: TopologyArm, folder: Path) -> None:
        self.label = inner.label
        self._inner = inner
        self._log = folder / "proxy.log"
        self._proxy: asyncio.subprocess.Process | None = None
        self._endpoint: Endpoint | None = None

    @property
    def endpoint(self) -> Endpoint:
        if self._endpoint is None:
            raise UnavailableError(f"arm {self.label} is not running")
        return self._endpoint

    async def start(self) -> None:
        await self._inner.start()
        try:
            await self._start_proxy(self._inner.endpoint)
        except BaseException:
            await self.stop()
            raise

    async def describe(self) -> Described:
        return await self._inner.describe()

    async def metrics(self) -> dict[str, float]:
        return await self._inner.metrics()

    async def alive(self) -> str | None:
        if self._proxy is None or self._proxy.returncode is not None:
            return f"its proxy ended; see {self._log}"
        return await self._inner.alive() or await not_serving(self.endpoint)

    async def reset(self) -> None:
        await self._inner.reset()

    async def stop(self) -> None:
        proxy, self._proxy, self._endpoint = self._proxy, None, None
        if proxy is not None:
            await end(proxy, _STOP_S)
        await self._inner.stop()

    async def _start_proxy(self, inner: Endpoint) -> None:
        (port,) = free_ports(1)
        at = urlsplit(inner.url)
        relay = ("-m", "splitserve.lab.arms.relay", str(port), str(at.hostname), str(at.port))
        with self._log.open("wb") as log:
            self._proxy = await asyncio.create_subprocess_exec(
                *tied_command((sys.executable, *relay)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        endpoint = Endpoint(f"http://127.0.0.1:{port}", inner.model, inner.headers)
        await self._ready(self._proxy, endpoint)
        self._endpoint = endpoint

    async def _ready(self, proxy: asyncio.subprocess.Process, endpoint: Endpoint) -> None:
        end_s = monotonic() + _START_S
        while (why := await not_serving(endpoint)) is not None:
            if proxy.returncode is not None:
                how = describe_exit(proxy.returncode)
                raise UnavailableError(f"the proxy of arm {self.label} {how}; see {self._log}")
            if monotonic() > end_s:
                raise UnavailableError(f"arm {self.label} does not answer through its proxy: {why}")
            await asyncio.sleep(_POLL_S)
