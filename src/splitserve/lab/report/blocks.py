"""What a section is made of."""

from dataclasses import dataclass

from splitserve.lab.report.figure import Figure
from splitserve.lab.report.plots import Plot


@dataclass(frozen=True, slots=True)
class Points:
    """Several sentences in one cell, each on a line of its own."""

    says: tuple[str, ...]

    def __str__(self) -> str:
        """For forms that have one line a cell."""
        return "; ".join(self.says)


Cell = str | Figure | Points


@dataclass(frozen=True, slots=True)
class Text:
    """One paragraph; ``strong`` where it must not be overlooked."""

    says: str
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """Short points under a heading."""

    title: str
    points: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """``rows`` as wide as ``columns``; the first cell of a row names it.

    ``folded``: long and for reference, so that a page shows it to those who ask for it.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    folded: bool = False


Block = Text | Listing | Table | Plot


@dataclass(frozen=True, slots=True)
class Section:
    """One numbered part of the report."""

    title: str
    blocks: tuple[Block, ...]
