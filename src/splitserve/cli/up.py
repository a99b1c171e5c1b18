"""``splitserve up``: a deployment described in a file."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from splitserve.cli import options
from splitserve.launch.topology import checked, read_topology


def up(
    topology: Annotated[
        Path,
        typer.Argument(
            metavar="TOPOLOGY.toml", help="The deployment, as a file.", show_default=False
        ),
    ],
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Instead of the file's.", show_default=False),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Instead of the file's.", show_default=False),
    ] = None,
    log_dir: options.LogDir = None,
) -> int:
    """Start every process of TOPOLOGY.toml and keep them running.

    Prints the plan, waits until a request would be served, then shows what runs where. A worker
    that dies is started again, after half a second at first and after longer the more often it
    dies; one that keeps dying is given up, the others run on. SIGHUP restarts the workers one after
    another while the others serve. Ctrl-C (or SIGTERM) stops the gateway, then the workers; a
    second Ctrl-C kills them.

    The folder topologies/ of the source has examples.
    """
    asked = read_topology(topology)
    gateway = msgspec.structs.replace(
        asked.gateway,
        port=asked.gateway.port if port is None else port,
        host=asked.gateway.host if host is None else host,
    )
    from splitserve.cli.foreground import run_in_foreground

    return run_in_foreground(checked(msgspec.structs.replace(asked, gateway=gateway)), log_dir)
