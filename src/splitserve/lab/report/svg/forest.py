"""Ratios B/A of pairs and their intervals, over the noise that A/A pairs have."""

import math

from splitserve.lab.report.plots import Forest, ForestRow
from splitserve.lab.report.svg import canvas
from splitserve.lab.report.svg.scale import Scale, drawable, ratio_ticks, spanning

ROW = 20.0
NAMES = 190.0


def draw(plot: Forest) -> str:
    """One row per pair and per estimate, on a logarithmic scale."""
    ends = [v for r in plot.rows for v in (r.point, r.low, r.high) if v is not None]
    band = drawable(plot.band)
    x = spanning(ends, NAMES, canvas.RIGHT, 0.0, *(band or ()))
    bottom = canvas.TOP + ROW * max(1, len(plot.rows)) + 8
    parts = []
    if band is not None:
        low, high = x.at(band[0]), x.at(band[1])
        parts.append(canvas.box(low, canvas.TOP, high - low, bottom - canvas.TOP, "band"))
    label = "ratio B/A, logarithmic scale; left of 1: B is less"
    parts += canvas.x_axis(x, label, ratio_ticks(x), bottom)
    parts.append(canvas.line(x.at(0.0), canvas.TOP, x.at(0.0), bottom, "axis"))
    for number, row in enumerate(plot.rows):
        parts += _row(row, canvas.TOP + ROW * (number + 0.7), x)
    pairs = sum(row.low is None for row in plot.rows)
    note = "band: A against itself" if band is not None else "no band: too few A/A pairs"
    parts.append(canvas.text(NAMES, bottom + 52, f"{note}; n = {pairs} pairs"))
    return canvas.document(plot.title, parts, bottom + 64, note)


def _row(row: ForestRow, y: float, x: Scale) -> list[str]:
    parts = [canvas.text(NAMES - 8, y + 4, canvas.short(row.label), "end")]
    if row.low is not None and row.high is not None:
        parts.append(canvas.line(x.at(row.low), y, x.at(row.high), y, "interval"))
    if math.isnan(row.point):
        return [*parts, canvas.text(x.at(0.0) + 6, y + 4, "both failed")]
    style = canvas.look(0 if row.low is None else 1)
    parts.append(canvas.mark(x.at(row.point), y, style))
    if math.isinf(row.point):
        inward = "end" if row.point > 0 else ""
        beside = -8 if row.point > 0 else 8
        says = "∞: B failed" if row.point > 0 else "A failed"
        parts.append(canvas.text(x.at(row.point) + beside, y + 4, says, inward))
    return parts
