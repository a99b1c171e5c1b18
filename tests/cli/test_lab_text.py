"""A verdict as lines for a terminal."""

from lab.verdict.made_study import study
from splitserve.cli.lab_text import verdict_lines
from splitserve.lab.verdict.decide import decide
from splitserve.lab.verdict.outcome import Status


def test_the_verdict_comes_first_with_its_reason_and_every_clause_follows() -> None:
    verdict = decide(study())
    first, reason, *lines = verdict_lines(verdict)
    assert first == "verdict: ADOPT, as a candidate"
    assert reason == verdict.reason
    clauses = [line.split()[0] for line in lines if not line.startswith("   ")]
    assert clauses[:8] == [clause.name for clause in verdict.clauses]
    assert not [line for line in lines if line.lstrip().startswith("- ")]


def test_what_a_clause_lacks_stands_below_it_sentence_by_sentence() -> None:
    verdict = decide(study(rollback=None, handoffs=None))
    lines = list(verdict_lines(verdict))
    lacking = [says for c in verdict.clauses if c.status is not Status.HOLDS for says in c.lacking]
    assert [line.lstrip() for line in lines if "  - " in line] == [f"- {one}" for one in lacking]
    at = lines.index("  rollback       not shown  one can go back")
    assert lines[at + 1].lstrip().startswith("- no rollback was tried: [rollback] in the plan")
