"""What a section is made of."""

from dataclasses import dataclass

from splitserve.lab.report.figure import Figure
from splitserve.lab.report.plots import Plot

Cell = str | Figure


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
    """``rows`` as wide as ``columns``; the first cell of a row names it."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


Block = Text | Listing | Table | Plot


@dataclass(frozen=True, slots=True)
class Section:
    """One numbered part of the report."""

    title: str
    blocks: tuple[Block, ...]
