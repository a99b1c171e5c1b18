"""``serve`` and ``up``: a deployment that lives as long as the command that started it."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console

from splitserve.cli.hangup import HangupSignal
from splitserve.cli.pull import RichProgress
from splitserve.errors import UnavailableError
from splitserve.launch.facts import model_facts
from splitserve.launch.keep import Limits
from splitserve.launch.narrate import Narrator
from splitserve.launch.programs import check_programs
from splitserve.launch.running import Prepared, prepared
from splitserve.launch.show import show_log, show_plan, show_running, show_url, show_warnings
from splitserve.launch.supervise import Deployment
from splitserve.launch.topology import Topology
from splitserve.lifecycle import EXIT_INTERRUPTED, StartFailed, StopSignals


def run_in_foreground(topology: Topology, log_dir: Path | None) -> int:
    """Plans and runs ``topology`` until SIGTERM or Ctrl-C. Returns the exit code.

    What there is to read goes to stdout, what passes by to stderr. Raises ConfigError,
    UnavailableError and StartFailed, with nothing left running.
    """
    check_programs(topology)
    out, err = Console(), Console(stderr=True)
    with RichProgress(err) as progress:
        model = model_facts(topology.model, progress)
    with prepared(topology, model, log_dir) as ready:
        return keep_running(ready, out, err)


def keep_running(ready: Prepared, out: Console, err: Console) -> int:
    """Runs what is planned until it is told to stop: exit code 0 by SIGTERM, 130 by Ctrl-C."""
    show_plan(out, ready.plan)
    show_warnings(err, ready.plan.warnings)
    try:
        return asyncio.run(_until_signal(ready, out, Narrator(err)))
    except StartFailed as error:
        show_log(err, error)
        raise


async def _until_signal(ready: Prepared, out: Console, narrator: Narrator) -> int:
    deployment = Deployment(ready.plan, ready.host, narrator.changed, Limits(), say=narrator.say)

    def abandon() -> None:
        deployment.kill()
        os._exit(EXIT_INTERRUPTED)

    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    serving = asyncio.create_task(_serve(deployment, ready, out, narrator, asked))
    with (
        StopSignals(lambda: loop.call_soon_threadsafe(serving.cancel), abandon) as signals,
        HangupSignal(restart=asked.set, stop=serving.cancel),
    ):
        await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()
    return signals.exit_code


async def _serve(
    deployment: Deployment,
    ready: Prepared,
    out: Console,
    narrator: Narrator,
    restart_asked: asyncio.Event,
) -> None:
    async with AsyncExitStack() as running:
        async with narrator.waiting_for(deployment.processes, lambda: deployment.notes):
            await running.enter_async_context(deployment)
        show_running(out, deployment.processes)
        show_url(
            out,
            deployment.url,
            ready.plan.topology.model.served_as,
            narrator.elapsed_s,
            asks_for_keys=ready.plan.asks_for_keys,
        )
        for note in deployment.notes:
            narrator.say(note)
        restarting = asyncio.create_task(_restart_when(restart_asked, deployment, narrator))
        try:
            await deployment.run_forever()
        finally:
            restarting.cancel()


async def _restart_when(asked: asyncio.Event, deployment: Deployment, narrator: Narrator) -> None:
    """Each time it is asked for; what is asked for meanwhile is one more."""
    while True:
        await asked.wait()
        asked.clear()
        try:
            await deployment.restart_workers(narrator.say)
        except UnavailableError as error:
            narrator.say(f"restarting stops here: {error}")
