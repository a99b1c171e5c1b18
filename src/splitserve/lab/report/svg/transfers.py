"""What a hand-off took against what it moved: where the line begins, and how steep it is."""

from typing import Final

from splitserve.lab.report.figure import number
from splitserve.lab.report.plots import TransferFit, Transfers
from splitserve.lab.report.svg import canvas
from splitserve.lab.report.svg.scale import spanning, thinned

MOST: Final = 1500
MIB: Final = 2.0**20
MS: Final = 1000.0


def draw(plot: Transfers) -> str:
    """A marker per hand-off, and the fitted line dashed."""
    x = spanning((b / MIB for b, _ in plot.points), canvas.LEFT, canvas.RIGHT, 0.0)
    y = spanning((MS * s for _, s in plot.points), canvas.BOTTOM, canvas.TOP, 0.0)
    parts = [
        *canvas.x_axis(x, "KV moved, MiB", canvas.numbered(x)),
        *canvas.y_axis(y, "KV hand-off, ms", canvas.numbered(y)),
    ]
    if not plot.points:
        return canvas.document(plot.title, [*parts, canvas.nothing()])
    shown = thinned(plot.points, MOST)
    parts += [canvas.mark(x.at(b / MIB), y.at(MS * s), canvas.look(0), 2.5) for b, s in shown]
    if plot.fit is not None:
        ends = [(x.at(m), y.at(MS * _seconds(plot.fit, m * MIB))) for m in (x.low, x.high)]
        parts.append(canvas.path(ends, canvas.look(1)))
    note = f"n = {len(plot.points)} hand-offs; {_told(plot.fit)}"
    parts.append(canvas.text(canvas.LEFT, canvas.BOTTOM + 56, note))
    return canvas.document(plot.title, parts, canvas.BOTTOM + 66, note)


def _seconds(fit: TransferFit, moved: float) -> float:
    return fit.start_s + moved / fit.bytes_per_s


def _told(fit: TransferFit | None) -> str:
    if fit is None:
        return "no line fits: sizes or times do not grow together"
    return (
        f"dashed: {number(MS * fit.start_s)} ms + size / {number(fit.bytes_per_s / MIB)} MiB/s, "
        "least squares"
    )
