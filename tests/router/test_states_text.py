"""The map in ARCHITECTURE.md is the machine's own table."""

from pathlib import Path

import pytest
from states_text import leads_to, states_text

from splitserve.router.handoff.kinds import Kind
from splitserve.router.handoff.machine import TABLE
from splitserve.router.handoff.states import State

PAGE = Path(__file__).parents[2] / "ARCHITECTURE.md"


def test_the_page_shows_what_the_table_does() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Handoff states\n")[2]
    section = section.partition("\n## ")[0]
    assert section, "ARCHITECTURE.md has no section 'Handoff states'"
    drawn = section.partition("```mermaid\n")[2].partition("\n```")[0]
    assert drawn == states_text(), "run: python tests/router/states_text.py"


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("state", list(State))
def test_no_pair_of_the_table_is_left_out(state: State, kind: Kind) -> None:
    assert bool(leads_to(state, kind)) == ((state, kind) in TABLE)
