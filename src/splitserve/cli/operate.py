"""``splitserve drain`` and ``splitserve set-role``: an operator's words to one running worker."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from splitserve.errors import ConfigError
from splitserve.launch.checks import check_value, one_of
from splitserve.launch.talk import talk
from splitserve.launch.topology import ROLES
from splitserve.protocol.address import parse_address
from splitserve.protocol.control import DRAIN_GRACE_S, Drain, SetRole
from splitserve.protocol.gate import Gate, GateFiles

Address = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="The worker's, unix:/path or tcp:host:port, as serve and up show it.",
        show_default=False,
    ),
]
Grace = Annotated[
    float,
    typer.Option(
        "--grace-s",
        metavar="SECONDS",
        help="How long running requests may stay; what is left then goes on at another worker.",
    ),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        help="The secret that processes share, for tcp addresses.",
        show_default=False,
    ),
]


def drain(address: Address, grace_s: Grace = DRAIN_GRACE_S, secret_file: SecretFile = None) -> int:
    """Let a worker finish what it runs, take nothing new, and end.

    A worker that serve or up started is started again.
    """
    _check(address, grace_s)
    said = asyncio.run(talk(address, Drain(grace_s), _gate(secret_file)))
    print(f"{said.welcome.worker} drains: {said.load.running + said.load.waiting} requests left")
    return 0


def set_role(
    address: Address,
    role: Annotated[
        str,
        typer.Argument(
            metavar="|".join(ROLES), help="What the router is to send there.", show_default=False
        ),
    ],
    grace_s: Grace = DRAIN_GRACE_S,
    secret_file: SecretFile = None,
) -> int:
    """Give a running worker another role.

    It takes new work of the new kind at once, and lets that of the old kind end. A worker changes
    its role at most every ten seconds.
    """
    one_of("ROLE", role, ROLES)
    _check(address, grace_s)
    said = asyncio.run(talk(address, SetRole(role, grace_s), _gate(secret_file)))
    if said.role is not None and said.role.refused:
        raise ConfigError(f"{said.welcome.worker} stays {said.role.role}: {said.role.refused}")
    print(f"{said.welcome.worker} is a {role} worker now")
    return 0


def _check(address: str, grace_s: float) -> None:
    parse_address(address)
    check_value("--grace-s", grace_s, grace_s >= 0, "must not be negative")


def _gate(secret_file: Path | None) -> Gate:
    return Gate.load(GateFiles(secret_file=secret_file), os.environ)
