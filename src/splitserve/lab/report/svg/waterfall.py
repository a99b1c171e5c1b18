"""Where the time to the first token went, part after part."""

from typing import Final

from splitserve.lab.report.plots import Waterfall
from splitserve.lab.report.svg import canvas
from splitserve.lab.report.svg.scale import Scale, spanning

ROW: Final = 30.0
NAMES: Final = 230.0
MS: Final = 1000.0
SHADES: Final = (
    *("#1f3a5f", "#b3541e", "#8fae7f", "#c9b4dc", "#bbbbbb"),
    *("#e6c35c", "#7fa8c9", "#6b4c7d", "#3f7d5a", "#d98f8f"),
)


def draw(plot: Waterfall) -> str:
    """One bar per row; each part is numbered as in the legend below."""
    # A row with more parts knows where those belong that others lack.
    longest_first = sorted(plot.rows, key=lambda row: -len(row.parts))
    names = list(dict.fromkeys(name for row in longest_first for name, _ in row.parts))
    sums = [MS * sum(max(0.0, s) for _, s in row.parts) for row in plot.rows]
    x = spanning(sums, NAMES, canvas.RIGHT, 0.0)
    bottom = canvas.TOP + ROW * max(1, len(plot.rows)) + 6
    parts = canvas.x_axis(x, "median of each part, ms", canvas.numbered(x), bottom)
    for number, row in enumerate(plot.rows):
        y = canvas.TOP + ROW * number + 4
        parts.append(
            canvas.text(NAMES - 8, y + 15, f"{canvas.short(row.label)} (n = {row.n})", "end")
        )
        parts += _bar(row.parts, names, y, x)
    for number, name in enumerate(names):
        at = bottom + 56 + 16 * number
        parts.append(canvas.box(NAMES, at - 10, 12, 12, "part", _shade(number)))
        parts.append(canvas.text(NAMES + 18, at, f"{number + 1} {name}"))
    if not plot.rows:
        parts.append(canvas.text(NAMES + 8, canvas.TOP + 20, "no server said where time went"))
    return canvas.document(plot.title, parts, bottom + 60 + 16 * len(names))


def _bar(parts: tuple[tuple[str, float], ...], names: list[str], y: float, x: Scale) -> list[str]:
    drawn, start = [], 0.0
    for name, seconds in parts:
        # Clocks may make a remainder negative; it is in the table, and has no width.
        end = start + MS * max(0.0, seconds)
        left, width = x.at(start), x.at(end) - x.at(start)
        number = names.index(name)
        drawn.append(canvas.box(left, y, width, 20, "part", _shade(number)))
        if width > 14:
            drawn.append(canvas.text(left + width / 2, y + 14, str(number + 1), "onbar"))
        start = end
    return drawn


def _shade(number: int) -> str:
    return SHADES[number % len(SHADES)]
