"""The report as Markdown, for a repository or a pull request. Plots are only named."""

import re
from typing import Final

from splitserve.lab.report.blocks import Block, Listing, Section, Table, Text
from splitserve.lab.report.escape import plain
from splitserve.lab.report.model import StudyReport
from splitserve.lab.report.sections.opening import HEADLINES

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#~])")


def markdown(report: StudyReport) -> str:
    """The whole file."""
    parts = [
        f"# Study {safe(report.study)}: {HEADLINES[report.verdict.outcome]}",
        f"{safe(report.made_at)}, plan `{report.digest}`",
        *(_section(k, one) for k, one in enumerate(report.sections, 1)),
    ]
    return "\n\n".join(parts) + "\n"


def safe(text: str) -> str:
    """``text`` on one line, with nothing in it that Markdown or HTML would act on."""
    one_line = " ".join(plain(text).split())
    return _SPECIAL.sub(r"\\\1", one_line.replace("&", "&amp;"))


def _section(number: int, section: Section) -> str:
    blocks = [_block(block) for block in section.blocks]
    return "\n\n".join([f"## {number} {safe(section.title)}", *blocks])


def _block(block: Block) -> str:
    match block:
        case Text():
            return f"**{safe(block.says)}**" if block.strong else safe(block.says)
        case Listing():
            points = "\n".join(f"- {safe(point)}" for point in block.points)
            return f"### {safe(block.title)}\n\n{points}"
        case Table():
            return _table(block)
        case _:
            return f"(plot in report.html: {safe(block.title)})"


def _table(table: Table) -> str:
    head, *body = (tuple(safe(str(cell)) for cell in row) for row in (table.columns, *table.rows))
    rows = (head, ("---",) * len(head), *body)
    written = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    caption = f"**{safe(table.caption)}**\n\n" if table.caption else ""
    note = f"\n\n{safe(table.note)}" if table.note else ""
    return f"{caption}{written}{note}"
