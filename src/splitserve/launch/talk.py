"""A word with a running worker, over its own protocol: how it is, and what it is to do."""

import asyncio
from dataclasses import dataclass
from typing import Final

from splitserve.errors import UnavailableError
from splitserve.ids import new_incarnation
from splitserve.protocol.address import parse_address
from splitserve.protocol.codec import Message, encode
from splitserve.protocol.connection import Connection, connect
from splitserve.protocol.control import Drain, Hello, RoleSet, SetRole, Welcome
from splitserve.protocol.gate import Gate
from splitserve.protocol.telemetry import Load

TALK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Said:
    """``load`` counts this conversation among the gateways. ``role`` answers SetRole."""

    welcome: Welcome
    load: Load
    role: RoleSet | None


async def talk(
    address: str, order: Drain | SetRole | None = None, gate: Gate | None = None
) -> Said:
    """Introduces itself, gives the order and waits until the worker shows that it has it.

    Raises UnavailableError when nobody answers so within TALK_S, ConfigError for a bad address.
    """
    target, ear = parse_address(address), _Ear(order)
    connection = Connection(f"worker {address}", ear)
    try:
        async with asyncio.timeout(TALK_S):
            await connect(target, connection, gate)
            return await ear.said
    except (OSError, TimeoutError) as error:
        reason = str(error) or f"no answer within {TALK_S:.0f} s"
        raise UnavailableError(f"the worker at {address}: {reason}") from error
    finally:
        connection.close()


class _Ear:
    """Listener of the connection."""

    def __init__(self, order: Drain | SetRole | None) -> None:
        self.said: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self._order = order
        self._welcome: Welcome | None = None
        self._load: Load | None = None
        self._role: RoleSet | None = None

    def made(self, connection: Connection) -> None:
        connection.write(encode(Hello(f"operator-{new_incarnation()}")))
        if self._order is not None:
            connection.write(encode(self._order))

    def received(self, connection: Connection, messages: list[Message]) -> None:
        del connection
        for message in messages:
            match message:
                case Welcome():
                    self._welcome = message
                case RoleSet():
                    self._role = message
                case Load():
                    self._load = message
                case _:
                    pass
        self._conclude()

    def lost(self, connection: Connection, reason: str) -> None:
        del connection
        if not self.said.done():
            self.said.set_exception(ConnectionError(reason))

    def _conclude(self) -> None:
        welcome, load = self._welcome, self._load
        # The first Load is older than this conversation: it counts no gateway of it.
        if welcome is None or load is None or load.gateways == 0 or self.said.done():
            return
        heard = {
            Drain: load.draining,
            SetRole: self._role is not None,
        }
        if self._order is None or heard[type(self._order)]:
            self.said.set_result(Said(welcome, load, self._role))
