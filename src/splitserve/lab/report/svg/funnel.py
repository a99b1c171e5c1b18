"""The mean of A against itself, pair after pair, within what noise alone allows."""

from splitserve.lab.report.plots import Funnel
from splitserve.lab.report.svg import canvas
from splitserve.lab.report.svg.scale import ratio_ticks, spanning


def draw(plot: Funnel) -> str:
    """The limits narrow as pairs come; a mean that leaves them would be no noise."""
    points = plot.points
    x = spanning((p.pairs for p in points), canvas.LEFT, canvas.RIGHT)
    ends = [v for p in points for v in (p.value, p.low, p.high)]
    y = spanning(ends, canvas.BOTTOM, canvas.TOP, 0.0)
    counts = [(float(p.pairs), f"{p.pairs}") for p in points]
    parts = [
        *canvas.x_axis(x, "A/A pairs so far", counts),
        *canvas.y_axis(y, "ratio of A to itself", ratio_ticks(y)),
        canvas.line(canvas.LEFT, y.at(0.0), canvas.RIGHT, y.at(0.0), "axis"),
    ]
    if not points:
        return canvas.document(plot.title, [*parts, canvas.nothing()])
    mean = [(x.at(p.pairs), y.at(p.value)) for p in points]
    low = [(x.at(p.pairs), y.at(p.low)) for p in points]
    high = [(x.at(p.pairs), y.at(p.high)) for p in points]
    first, second = canvas.look(0), canvas.look(1)
    parts += [canvas.path(mean, first), canvas.path(low, second), canvas.path(high, second)]
    parts += [canvas.mark(at, to, first) for at, to in mean]
    labels = [f"mean of the pairs so far (n = {len(points)} pairs)", "95 % limits of noise alone"]
    return canvas.legended(plot.title, parts, labels, marked=1)
