"""How the command line fails: one line on stderr and an exit code that says whose fault it is."""

from typing import Final

import typer

from splitserve.errors import ConfigError, SplitserveError, UnavailableError
from splitserve.lifecycle import (
    EXIT_INTERRUPTED,
    EXIT_START_FAILED,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    StartFailed,
)

_CODES: Final = {
    ConfigError: EXIT_USAGE,
    UnavailableError: EXIT_UNAVAILABLE,
    StartFailed: EXIT_START_FAILED,
}

EXIT_CODES_HELP: Final = (
    f"Exit codes: 0 done; {EXIT_USAGE} a setting is wrong; {EXIT_UNAVAILABLE} something outside is "
    f"missing (network, disk, package); {EXIT_START_FAILED} a process did not start; "
    f"{EXIT_INTERRUPTED} stopped by Ctrl-C; 1 anything else."
)


def exit_code_of(error: SplitserveError) -> int:
    """The code by which scripts tell the cause."""
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), 1)


def help_without_verb(context: typer.Context) -> None:
    """Shows the help, and fails, when no verb was given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(EXIT_USAGE)
