"""How full each worker was, over the time of one run."""

from typing import Final

from splitserve.lab.report.plots import Usage
from splitserve.lab.report.svg import canvas
from splitserve.lab.report.svg.scale import Scale, spanning, thinned

MOST: Final = 300
MARKS: Final = 8


def draw(plot: Usage) -> str:
    """A line per worker with a few markers on it."""
    x = spanning((t for c in plot.courses for t, _ in c.points), canvas.LEFT, canvas.RIGHT, 0.0)
    y = Scale(0.0, 100.0, canvas.BOTTOM, canvas.TOP)
    parts = [
        *canvas.x_axis(x, "time in the run, s", canvas.numbered(x)),
        *canvas.y_axis(y, f"{plot.quantity}, %", canvas.numbered(y)),
    ]
    courses = [course for course in plot.courses if course.points]
    if not courses:
        return canvas.document(plot.title, [*parts, canvas.nothing()])
    for number, course in enumerate(courses):
        placed = [(x.at(t), y.at(v)) for t, v in thinned(course.points, MOST)]
        parts.append(canvas.path(placed, canvas.look(number)))
        parts += [canvas.mark(at, to, canvas.look(number)) for at, to in thinned(placed, MARKS)]
    labels = [f"{course.label} (n = {len(course.points)} samples)" for course in courses]
    below = canvas.BOTTOM + 56
    parts += canvas.legend(labels, y=below)
    return canvas.document(plot.title, parts, below + 16 * len(labels), "; ".join(labels))
