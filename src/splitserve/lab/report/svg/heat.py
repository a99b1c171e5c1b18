"""Attainment by prompt and load: every tile has its number, and the darker the more."""

from collections.abc import Sequence
from typing import Final

from splitserve.lab.report.plots import Heat, Tile
from splitserve.lab.report.svg import canvas

NAMES: Final = 110.0
TILE_HEIGHT: Final = 40.0
DARKEST: Final = 0.35
"""Of the ink, so that a number can be read on it."""


def draw(plot: Heat) -> str:
    """One grid below the other, on the same rows and columns."""
    tiles = [tile for _, listed in plot.panels for tile in listed]
    rows = list(dict.fromkeys(tile.row for tile in tiles))
    columns = list(dict.fromkeys(tile.column for tile in tiles))
    parts, top = [], canvas.TOP
    for name, listed in plot.panels:
        parts.append(canvas.text(8, top + 10, f"{name}; {plot.down} down, {plot.across} across"))
        parts += _grid(listed, rows, columns, top + 36)
        top += 36 + TILE_HEIGHT * max(1, len(rows)) + 24
    if not tiles:
        parts.append(canvas.nothing())
    said = "; ".join(
        f"{name}, {tile.row}, {tile.column}: {_percent(tile)} of {tile.n} requests"
        for name, listed in plot.panels
        for tile in listed
    )
    return canvas.document(plot.title, parts, max(top, canvas.HEIGHT), said)


def _grid(
    tiles: Sequence[Tile], rows: Sequence[str], columns: Sequence[str], top: float
) -> list[str]:
    width = (canvas.RIGHT - NAMES) / max(1, len(columns))
    fits = max(4, int(width / 8))
    parts = [
        canvas.text(NAMES + width * (k + 0.5), top - 6, canvas.short(name, fits), "middle")
        for k, name in enumerate(columns)
    ]
    for k, name in enumerate(rows):
        parts.append(
            canvas.text(NAMES - 8, top + TILE_HEIGHT * (k + 0.6), canvas.short(name, 14), "end")
        )
    for tile in tiles:
        x = NAMES + width * columns.index(tile.column)
        y = top + TILE_HEIGHT * rows.index(tile.row)
        parts.append(canvas.tile(x, y, width, TILE_HEIGHT, DARKEST * tile.share))
        parts.append(canvas.text(x + width / 2, y + 17, _percent(tile), "middle"))
        parts.append(canvas.text(x + width / 2, y + 32, f"n = {tile.n}", "middle"))
    return parts


def _percent(tile: Tile) -> str:
    return f"{100 * tile.share:.3g} %"
