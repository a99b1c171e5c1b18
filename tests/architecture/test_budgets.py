"""Files and functions stay small enough to be read in one go."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "splitserve"

FILE_LINES = 400
FUNCTION_LINES = 60

REASONS = {
    "cli/worker.py:worker": "one parameter per flag: its signature is the table of flags",
    "cli/gateway.py:gateway": "one parameter per flag: its signature is the table of flags",
    "cli/serve.py:serve": "one parameter per flag: its signature is the table of flags",
}
"""What may be longer, and why: ``file`` or ``file:function``."""


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def sizes() -> Iterator[tuple[str, int, int]]:
    """Name, lines and budget of every file and function."""
    for path in sources():
        text, name = path.read_text(encoding="utf-8"), path.relative_to(SOURCE).as_posix()
        yield name, len(text.splitlines()), FILE_LINES
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield f"{name}:{node.name}", lines, FUNCTION_LINES


def over_budget() -> dict[str, int]:
    return {name: lines for name, lines, budget in sizes() if lines > budget}


def test_nothing_is_over_budget_without_a_reason() -> None:
    assert len(sources()) > 10
    assert {name: lines for name, lines in over_budget().items() if name not in REASONS} == {}


def test_no_reason_is_left_over() -> None:
    assert set(REASONS) <= set(over_budget())
