"""``splitserve doctor``: what is wrong, or slow, and what to do about it."""

from typing import Annotated

import typer

from splitserve.loading import load

DOCTOR_HELP = (
    "Exit codes: 0 fine; 1 there are warnings; 2 a setting is wrong; 3 nobody answers at URL; 4 "
    "something would not start, or does not serve; 130 stopped by Ctrl-C."
)


def doctor(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPOLOGY.toml|URL]",
            help="What to look at.",
            show_default="this machine",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    ttft_ms: Annotated[
        float,
        typer.Option(
            "--ttft-ms",
            metavar="MS",
            min=1,
            help="The time to the first token that is aimed at, for what a prompt's KV may take.",
        ),
    ] = 1000,
    seconds: Annotated[
        float,
        typer.Option(metavar="S", min=0.01, help="How long each path is measured."),
    ] = 0.5,
) -> int:
    """Say what is wrong or slow here, and what to do about it.

    Without a target it looks at this machine: versions, devices, limits, and how fast KV gets from
    one process into another by each path. With a topology it says besides what that would choose,
    whether it would start, and what the KV of prompts costs. With the URL of a running gateway it
    asks that. Nothing is started or fetched, and no request is sent to a model.
    """
    return int(
        load("splitserve.cli.doctor_run:run")(
            target=target, as_json=as_json, ttft_ms=ttft_ms, seconds=seconds
        )
    )
