"""``splitserve lab``: decide by measurement whether to split."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from splitserve.cli import lab_extra
from splitserve.cli.errors import help_without_verb
from splitserve.loading import load

VERDICTS_HELP = (
    "Exit codes of run, resume and report: 0 adopt, as a candidate; 10 keep single; 11 try chunked "
    "prefill; 20 inconclusive; 30 invalid; 40 the lab itself could not go on; 130 stopped by "
    "Ctrl-C; 2 the plan or a setting is wrong; 3 a package or the model is missing."
)

lab = typer.Typer(rich_markup_mode=None, epilog=VERDICTS_HELP)

Plan = Annotated[
    Path, typer.Argument(metavar="STUDY.toml", help="The plan of the study.", show_default=False)
]
Profile = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="full, or smoke: a few minutes, and never a verdict to adopt.",
        show_default="the plan's",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The folder of the study's results.",
        show_default="results/ID, results/ID-smoke",
    ),
]


@lab.callback(invoke_without_command=True)
def verbs(context: typer.Context) -> None:
    """Decide by measurement whether to split: a plan, its runs, a verdict, a report."""
    help_without_verb(context)


@lab.command(short_help="Check a plan, and show what it will do.")
def check(study: Plan, profile: Profile = None) -> int:
    """Check STUDY.toml and show what it will do: what is fixed, what may vary, every run and about
    how long it takes, and whether adopting the split is a possible outcome.

    Nothing is started and nothing is sent.
    """
    return int(_needs_extra("check")(study, profile))


@lab.command(short_help="Run a study.")
def run(study: Plan, profile: Profile = None, out: Out = None) -> int:
    """Run all of STUDY.toml, and say what follows from it.

    First the load client is tested on this machine. Then all runs are made in the order of the
    plan; while they are, nothing is shown of how the arms compare. A run that breaks a rule is
    void, and its pair is repeated once. Ctrl-C stops cleanly; `splitserve lab resume` goes on.
    """
    return int(_needs_extra("run")(study, profile, out))


@lab.command(short_help="Go on with a study that was stopped.")
def resume(study: Plan, profile: Profile = None, out: Out = None) -> int:
    """Go on where the study was stopped, in whatever way: at its first pair that is not complete.

    What was half done counts for nothing and is done again. Refused where the plan has changed.
    """
    return int(_needs_extra("resume")(study, profile, out))


@lab.command(short_help="Say again what follows from a study.")
def report(study: Plan, profile: Profile = None, out: Out = None) -> int:
    """Work out the verdict and write the report again, from what was measured so far."""
    return int(_needs_extra("report")(study, profile, out))


def _needs_extra(verb: str) -> Callable[..., int]:
    """The verb's implementation, imported late: it needs packages that serving does not."""
    lab_extra.require()
    found: Callable[..., int] = load(f"splitserve.cli.lab_study:{verb}")
    return found
