"""Formats that put calls into a section of its own, between special tokens."""

from collections.abc import Sequence

from splitserve.frontend.derender.parsers.call_parser import ARGUMENTS, TEXT, Grammar, after
from splitserve.frontend.derender.parsers.shape import SPACES, Shape, each


def sectioned(section: str, begin: str, head: Shape, ends: Sequence[str]) -> Grammar:
    """Calls that begin with ``begin`` and ``head``, which is all up to the arguments.

    ``section`` comes before the first of them; models also leave it out. ``ends`` are what closes
    arguments, call and section, in this order; any may be missing.
    """
    states = [after(ARGUMENTS), *(f"after {end}" for end in ends[:-1]), TEXT]
    shapes = [Shape(SPACES, *each(end)) for end in ends]
    steps = list(zip(shapes, states[1:], strict=True))
    return Grammar(
        openers={section: "section", begin: "head"},
        before={
            "section": ((Shape(SPACES, *each(begin)), "head"),),
            "head": ((head, ARGUMENTS),),
        },
        after={state: steps[at:] for at, state in enumerate(states[:-1])},
    )
