"""The ``splitserve`` command: its verbs, and how it ends."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from splitserve import __version__
from splitserve.cli.bench import bench
from splitserve.cli.doctor import DOCTOR_HELP, doctor
from splitserve.cli.errors import EXIT_CODES_HELP, exit_code_of, help_without_verb
from splitserve.cli.gateway import gateway
from splitserve.cli.key import key
from splitserve.cli.lab import lab
from splitserve.cli.operate import drain, set_role
from splitserve.cli.render import render
from splitserve.cli.serve import serve
from splitserve.cli.up import up
from splitserve.cli.worker import worker
from splitserve.errors import SplitserveError
from splitserve.lifecycle import EXIT_INTERRUPTED
from splitserve.loading import load

app = typer.Typer(
    name="splitserve",
    help="Serve an LLM in parts that scale apart, and measure whether the split pays.",
    epilog=EXIT_CODES_HELP,
    add_completion=False,
    # Plain help: boxes cut long flag names off, and take 0.1 s to draw.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.command(short_help="Serve a model, whole or split.")(serve)
app.command(short_help="Run what a topology file describes.")(up)


@app.command(short_help="See the split at work.")
def demo(
    seconds: Annotated[
        float, typer.Option(metavar="S", min=1, help="Length of each of the two loads.")
    ] = 60,
    rate: Annotated[
        float,
        typer.Option(
            metavar="R",
            min=0,
            help="Requests per second; 0 chooses what this machine can do.",
            show_default=False,
        ),
    ] = 0,
) -> int:
    """Show the split at work: a chat answer, then one load against two shapes, side by side.

    The same requests, at the same times, go to two workers that do everything and to one prefill
    and one decode worker, on the same cores. It says plainly when the split did not pay.
    """
    return int(load("splitserve.cli.demo:run")(seconds=seconds, rate=rate))


@app.command(short_help="Fetch a known model.")
def pull(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A known name (smollm2).", show_default=False)
    ],
) -> int:
    """Fetch a model that has a name, so that serving it needs no network."""
    return int(load("splitserve.cli.pull:run")(name))


app.command(short_help="Run one worker by hand.")(worker)
app.command(short_help="Run one gateway by hand.")(gateway)
app.command(short_help="Let a running worker finish and leave.")(drain)
app.command("set-role", short_help="Give a running worker another role.")(set_role)
app.command(short_help="Run the text work as a service.")(render)
app.command(short_help="Make a key for a client.")(key)
app.command(short_help="Say what is wrong or slow, and the cure.", epilog=DOCTOR_HELP)(doctor)
app.add_typer(bench, name="bench", short_help="Measure one part at a time.")
app.add_typer(lab, name="lab", short_help="Decide by measurement whether to split.")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def splitserve(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Serve an LLM in parts that scale apart, and measure whether the split pays."""
    del version
    help_without_verb(context)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code. Errors are one line on stderr."""
    try:
        code = app(args=arguments, prog_name="splitserve", standalone_mode=False)
    except SplitserveError as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_code_of(error)
    except typer.TyperException as error:
        print(f"error: {error.format_message()}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return int(code or 0)
