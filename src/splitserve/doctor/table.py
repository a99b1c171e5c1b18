"""Columns of plain text: whole at any width, and fit for grep. Pure."""

from collections.abc import Iterator, Sequence


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line for each row; all have the same number of cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
