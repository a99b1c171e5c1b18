"""Attainment over the request rate: where each arm stops keeping the SLO."""

from splitserve.lab.report.plots import Rates
from splitserve.lab.report.svg import canvas
from splitserve.lab.report.svg.scale import Scale, spanning


def draw(plot: Rates) -> str:
    """A marker per rate with its bounds; the target is a dotted line."""
    x = spanning((p.rate for a in plot.arms for p in a.points), canvas.LEFT, canvas.RIGHT, 0.0)
    y = Scale(0.0, 1.0, canvas.BOTTOM, canvas.TOP)
    wanted = y.at(plot.target)
    parts = [
        *canvas.x_axis(x, f"requests, {plot.unit}", canvas.numbered(x)),
        *canvas.y_axis(y, "attainment of the SLO", canvas.numbered(y)),
        canvas.line(canvas.LEFT, wanted, canvas.RIGHT, wanted, "limit", "3 3"),
    ]
    arms = [arm for arm in plot.arms if arm.points]
    if not arms:
        return canvas.document(plot.title, [*parts, canvas.nothing()])
    for number, arm in enumerate(arms):
        style = canvas.look(number)
        placed = [(x.at(p.rate), y.at(p.share)) for p in sorted(arm.points, key=lambda p: p.rate)]
        parts.append(canvas.path(placed, style))
        for p in arm.points:
            at = x.at(p.rate)
            parts.append(canvas.line(at, y.at(p.low), at, y.at(p.high), "interval"))
            parts.append(canvas.mark(at, y.at(p.share), style))
    labels = [f"{arm.label} (n = {sum(p.n for p in arm.points)} requests)" for arm in arms]
    below = canvas.BOTTOM + 54
    note = f"bars: 95 % bounds; dotted: target {plot.target:g}"
    parts += [canvas.text(canvas.LEFT, below, note), *canvas.legend(labels, y=below + 18)]
    return canvas.document(plot.title, parts, below + 18 + 16 * len(labels), "; ".join(labels))
