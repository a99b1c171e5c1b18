"""Effects over the order of runs: a slope would be drift, and no property of an arm."""

import math

from splitserve.lab.report.plots import Order
from splitserve.lab.report.svg import canvas
from splitserve.lab.report.svg.scale import drawable, ratio_ticks, spanning


def draw(plot: Order) -> str:
    """One marker per pair; a dashed line joins the pairs of a series."""
    points = [point for point in plot.points if not math.isnan(point.value)]
    values = [point.value for point in points]
    x = spanning((point.position for point in points), canvas.LEFT, canvas.RIGHT)
    band = drawable(plot.band)
    y = spanning(values, canvas.BOTTOM, canvas.TOP, 0.0, *(band or ()))
    parts = []
    if band is not None:
        low, high = y.at(band[0]), y.at(band[1])
        parts.append(canvas.box(canvas.LEFT, high, canvas.RIGHT - canvas.LEFT, low - high, "band"))
    parts += canvas.x_axis(x, "position of the pair, runs from the start", canvas.numbered(x))
    parts += canvas.y_axis(y, "ratio B/A", ratio_ticks(y))
    parts.append(canvas.line(canvas.LEFT, y.at(0.0), canvas.RIGHT, y.at(0.0), "axis"))
    if not points:
        return canvas.document(plot.title, [*parts, canvas.nothing()])
    names = list(dict.fromkeys(point.series for point in points))
    for number, name in enumerate(names):
        series = [(p.position, p.value) for p in points if p.series == name]
        placed = [(x.at(at), y.at(value)) for at, value in sorted(series)]
        parts.append(canvas.path(placed, canvas.look(number)))
        parts += [canvas.mark(at, to, canvas.look(number)) for at, to in placed]
    counts = [f"{name} (n = {sum(p.series == name for p in points)} pairs)" for name in names]
    return canvas.legended(plot.title, parts, counts)
