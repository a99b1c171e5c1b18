"""The same request in both arms: below the diagonal B was better."""

import math
from typing import Final

from splitserve.lab.report.plots import Scatter
from splitserve.lab.report.svg import canvas
from splitserve.lab.report.svg.scale import spanning, thinned

MOST: Final = 1500


def draw(plot: Scatter) -> str:
    """A to the right, B upwards, on one scale. Failures stand at the borders."""
    values = [v for point in plot.points for v in point]
    x = spanning(values, canvas.LEFT, canvas.RIGHT, 0.0)
    y = spanning(values, canvas.BOTTOM, canvas.TOP, 0.0)
    parts = [
        *canvas.x_axis(x, f"{plot.quantity} in A, {plot.unit}", canvas.numbered(x)),
        *canvas.y_axis(y, f"{plot.quantity} in B, {plot.unit}", canvas.numbered(y)),
        canvas.line(x.start, y.start, x.end, y.end, "axis", "4 3"),
    ]
    if not plot.points:
        return canvas.document(plot.title, [*parts, canvas.nothing()])
    shown = thinned(plot.points, MOST)
    for a, b in shown:
        style = canvas.look(0 if math.isfinite(a) and math.isfinite(b) else 3)
        parts.append(canvas.mark(x.at(a), y.at(b), style, 2.2))
    note = _note(plot, len(shown))
    below = canvas.BOTTOM + 56
    parts.append(canvas.text(canvas.LEFT, below, note))
    return canvas.document(plot.title, parts, below + 10, note)


def _note(plot: Scatter, shown: int) -> str:
    n = len(plot.points)
    better = sum(b < a for a, b in plot.points)
    failed = sum(math.isinf(a) or math.isinf(b) for a, b in plot.points)
    part = f", {shown} shown" if shown < n else ""
    crosses = f"; failed in an arm: {failed} (crosses)" if failed else ""
    return f"n = {n} requests{part}; below the diagonal B is less: {better}{crosses}"
