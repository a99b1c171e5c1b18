"""One HTML file: style and plots inside, no network, no script."""

from itertools import groupby

from splitserve.lab.report.blocks import Block, Cell, Listing, Points, Section, Table, Text
from splitserve.lab.report.escape import escaped
from splitserve.lab.report.model import StudyReport
from splitserve.lab.report.page import STYLE
from splitserve.lab.report.plots import Plot
from splitserve.lab.report.sections.opening import HEADLINES
from splitserve.lab.report.svg.draw import svg


def html(report: StudyReport) -> str:
    """The whole page."""
    headline = HEADLINES[report.verdict.outcome]
    title = escaped(f"{report.study}: {headline}")
    sections = "".join(_section(k, one) for k, one in enumerate(report.sections, 1))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>"
        f'<header><h1>Study {escaped(report.study)}</h1><p class="verdict">'
        f"<strong>{escaped(headline)}</strong></p>"
        f'<p class="meta">{escaped(report.made_at)} · plan {escaped(report.digest)}</p></header>'
        f"{_contents(report)}<main>{sections}</main></body></html>\n"
    )


def _contents(report: StudyReport) -> str:
    links = "".join(
        f'<li><a href="#s{k}">{escaped(one.title)}</a></li>'
        for k, one in enumerate(report.sections, 1)
    )
    return f'<nav aria-label="Contents"><ol>{links}</ol></nav>'


def _section(number: int, section: Section) -> str:
    runs = groupby(section.blocks, key=lambda block: isinstance(block, Plot))
    blocks = "\n".join(
        _plots(tuple(run)) if drawn else "\n".join(map(_block, run)) for drawn, run in runs
    )
    title = f"{number} {escaped(section.title)}"
    return f'<section id="s{number}">\n<h2>{title}</h2>\n{blocks}\n</section>\n'


def _plots(plots: tuple[Block, ...]) -> str:
    """Plots that follow each other stand beside each other where there is room."""
    return f'<div class="plots">{"".join(map(_block, plots))}</div>'


def _block(block: Block) -> str:
    match block:
        case Text():
            kind = ' class="strong"' if block.strong else ""
            return f"<p{kind}>{escaped(block.says)}</p>"
        case Listing():
            points = "".join(f"<li>{escaped(point)}</li>" for point in block.points)
            return f"<h3>{escaped(block.title)}</h3><ul>{points}</ul>"
        case Table():
            return _table(block)
        case _:
            return f"<figure>{svg(block)}</figure>"


def _table(table: Table) -> str:
    titled = table.caption and not table.folded
    caption = f"<caption>{escaped(table.caption)}</caption>" if titled else ""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in table.columns)
    body = "".join(_row(row) for row in table.rows)
    if not table.rows:
        body = f'<tr><td colspan="{len(table.columns)}">none</td></tr>'
    note = f'<p class="note">{escaped(table.note)}</p>' if table.note else ""
    shown = (
        f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )
    if not table.folded:
        return shown
    summary = f"{table.caption} ({len(table.rows)} rows)"
    return f"<details><summary>{escaped(summary)}</summary>{shown}</details>"


def _row(row: tuple[Cell, ...]) -> str:
    first, *others = row
    cells = "".join(_cell(cell) for cell in others)
    return f'<tr><th scope="row">{escaped(str(first))}</th>{cells}</tr>'


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return f"<td>{escaped(cell)}</td>"
    if isinstance(cell, Points):
        return f"<td><ul>{''.join(f'<li>{escaped(one)}</li>' for one in cell.says)}</ul></td>"
    kind = "figure refused" if cell.refused or cell.value is None else "figure"
    detail = f'<span class="detail">{escaped(cell.detail)}</span>' if cell.detail else ""
    return f'<td class="{kind}">{escaped(cell.text)}{detail}</td>'
