"""When something happened, one row for each kind of it."""

from typing import Final

from splitserve.lab.report.plots import Happenings
from splitserve.lab.report.svg import canvas
from splitserve.lab.report.svg.scale import spanning, thinned

ROW: Final = 22.0
NAMES: Final = 250.0
FITS: Final = 30
MOST: Final = 300


def draw(plot: Happenings) -> str:
    """A marker each, at seconds of its run."""
    x = spanning(
        (t for _, times in plot.rows for t in times), NAMES, canvas.RIGHT, 0.0, plot.until_s
    )
    bottom = canvas.TOP + ROW * max(1, len(plot.rows)) + 8
    parts = canvas.x_axis(x, "time in the run, s", canvas.numbered(x), bottom)
    for number, (name, times) in enumerate(plot.rows):
        y = canvas.TOP + ROW * (number + 0.6)
        label = f"{canvas.short(name, FITS)} ({len(times)})"
        parts.append(canvas.text(NAMES - 10, y + 4, label, "end"))
        parts += [canvas.mark(x.at(t), y, canvas.look(number)) for t in thinned(times, MOST)]
    if not plot.rows:
        parts.append(canvas.text(NAMES + 8, canvas.TOP + 18, "nothing happened"))
    told = "; ".join(f"{name}: {len(times)}" for name, times in plot.rows)
    return canvas.document(plot.title, parts, bottom + 48, told)
