"""One answer's gaps over time, over the prefills of others: a stall and who caused it."""

from typing import Final

from splitserve.lab.report.plots import Timeline
from splitserve.lab.report.svg import canvas
from splitserve.lab.report.svg.scale import spanning, thinned

MOST: Final = 600
MS: Final = 1000.0


def draw(plot: Timeline) -> str:
    """A stem per gap; a bar on top for each other request from sent to first token."""
    ends = [t for t, _ in plot.gaps]
    x = spanning(ends, canvas.LEFT, canvas.RIGHT)
    y = spanning(
        (MS * gap for _, gap in plot.gaps), canvas.BOTTOM, canvas.TOP + 16, 0.0, MS * plot.reach_s
    )
    parts = [
        *canvas.x_axis(x, "time in the run, s", canvas.numbered(x)),
        *canvas.y_axis(y, "gap before a token, ms", canvas.numbered(y)),
    ]
    if not plot.gaps:
        return canvas.document(plot.title, [*parts, canvas.nothing()])
    spans = [(a, b) for a, b in plot.prefills if b > x.low and a < x.high]
    for start, end in thinned(spans, MOST):
        left = x.at(start)
        width = max(1.0, x.at(end) - left)
        parts.append(canvas.box(left, canvas.TOP, width, 8, "prefill"))
    for t, gap in thinned(plot.gaps, MOST):
        parts.append(canvas.line(x.at(t), y.at(0.0), x.at(t), y.at(MS * gap), "stem"))
    worst = MS * max(gap for _, gap in plot.gaps)
    note = (
        f"n = {len(plot.gaps)} gaps, longest {worst:.4g} ms; "
        f"bars on top: {len(spans)} other requests, sent to first token"
    )
    parts.append(canvas.text(canvas.LEFT, canvas.BOTTOM + 52, note))
    return canvas.document(plot.title, parts, note=note)
