"""The frame that all plots share: title, axes with units, grid, legend."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.lab.report.escape import escaped
from splitserve.lab.report.svg.scale import Scale

WIDTH: Final = 640
HEIGHT: Final = 340
LEFT: Final = 70.0
RIGHT: Final = 620.0
TOP: Final = 40.0
BOTTOM: Final = 285.0

NAME: Final = 26

Tick = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Look:
    """How the k-th series is drawn; ``kind`` is the class that gives it its shade."""

    kind: str
    dash: str
    marker: str


LOOKS: Final = (
    Look("s0", "", "circle"),
    Look("s1", "7 3", "square"),
    Look("s2", "2 3", "triangle"),
    Look("s3", "9 3 2 3", "cross"),
    Look("s4", "4 2", "diamond"),
)


def look(number: int) -> Look:
    """Of series ``number``; they repeat after five."""
    return LOOKS[number % len(LOOKS)]


def document(title: str, parts: Sequence[str], height: float = HEIGHT, note: str = "") -> str:
    """A whole plot. ``note`` is told to screen readers besides the title."""
    told = f"<desc>{escaped(note)}</desc>" if note else ""
    return "".join(
        (
            f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img">',
            f"<title>{escaped(title)}</title>{told}",
            text(8, 20, title, "title"),
            *parts,
            "</svg>",
        )
    )


def text(x: float, y: float, says: str, kind: str = "", turn: int = 0) -> str:
    """Text at a place; ``kind`` is a class of the page's style."""
    turned = f' transform="rotate({turn} {x:g} {y:g})"' if turn else ""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{named}{turned}>{escaped(says)}</text>'


def short(says: str, most: int = NAME) -> str:
    """``says`` as the names at the left of a row have room for; the whole stands in a table."""
    return says if len(says) <= most else f"{says[: most - 1]}…"


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid", dash: str = "") -> str:
    """A straight line."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{kind}"{dashed}/>'


def box(x: float, y: float, width: float, height: float, kind: str, fill: str = "") -> str:
    """A filled rectangle."""
    filled = f' fill="{fill}"' if fill else ""
    sized = f'width="{max(0.0, width):g}" height="{max(0.0, height):g}"'
    return f'<rect x="{x:g}" y="{y:g}" {sized} class="{kind}"{filled}/>'


def tile(x: float, y: float, width: float, height: float, ink: float) -> str:
    """A rectangle that is ``ink`` (0 to 1) of the way from paper to ink."""
    sized = f'width="{width:g}" height="{height:g}"'
    return f'<rect x="{x:g}" y="{y:g}" {sized} class="tile" fill-opacity="{ink:.3f}"/>'


def path(points: Sequence[tuple[float, float]], style: Look) -> str:
    """A line through pixels; nothing without any."""
    if not points:
        return ""
    steps = " ".join(f"{x:g},{y:g}" for x, y in points)
    dash = f' stroke-dasharray="{style.dash}"' if style.dash else ""
    return f'<polyline points="{steps}" class="curve {style.kind}"{dash}/>'


def mark(x: float, y: float, style: Look, size: float = 4) -> str:
    """The series' marker."""
    drawn = f'class="mark {style.kind}"'
    if style.marker == "circle":
        return f'<circle cx="{x:g}" cy="{y:g}" r="{size:g}" {drawn}/>'
    shapes = {
        "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        "triangle": ((0, -1), (1, 1), (-1, 1)),
        "cross": ((-1, -1), (1, 1), (0, 0), (-1, 1), (1, -1), (0, 0)),
        "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    }
    corners = " ".join(f"{x + size * a:g},{y + size * b:g}" for a, b in shapes[style.marker])
    return f'<polygon points="{corners}" {drawn}/>'


def x_axis(scale: Scale, label: str, ticks: Sequence[Tick], bottom: float = BOTTOM) -> list[str]:
    """Ticks with grid lines, and the label with its unit."""
    parts = [line(scale.start, bottom, scale.end, bottom, "axis")]
    for value, says in ticks:
        x = scale.at(value)
        parts += [line(x, TOP, x, bottom), text(x, bottom + 16, says, "middle")]
    middle = (scale.start + scale.end) / 2
    return [*parts, text(middle, bottom + 36, label, "middle")]


def y_axis(scale: Scale, label: str, ticks: Sequence[Tick]) -> list[str]:
    """The same at the left."""
    parts = [line(LEFT, scale.start, LEFT, scale.end, "axis")]
    for value, says in ticks:
        y = scale.at(value)
        parts += [line(LEFT, y, RIGHT, y), text(LEFT - 6, y + 4, says, "end")]
    return [*parts, text(16, (scale.start + scale.end) / 2, label, "middle", turn=-90)]


def numbered(scale: Scale) -> list[Tick]:
    """Ticks of a plain scale."""
    return [(value, f"{value:.6g}") for value in scale.ticks()]


def legend(labels: Sequence[str], y: float, marked: int | None = None) -> list[str]:
    """Names of series from ``y`` downwards, with dash and marker; only the first ``marked`` have
    markers, where not all do."""
    x = LEFT
    parts = []
    for number, says in enumerate(labels):
        at, style = y + 16 * number, look(number)
        parts += [
            path([(x, at - 4), (x + 34, at - 4)], style),
            mark(x + 17, at - 4, style) if marked is None or number < marked else "",
            text(x + 42, at, says),
        ]
    return parts


def legended(
    title: str, parts: Sequence[str], labels: Sequence[str], marked: int | None = None
) -> str:
    """A whole plot with its legend below the axis, which is also what screen readers are told."""
    below = BOTTOM + 56
    listed = legend(labels, below, marked)
    return document(title, [*parts, *listed], below + 16 * len(labels), "; ".join(labels))


def nothing() -> str:
    """What stands where there is nothing to draw."""
    return text((LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2, "nothing was measured", "middle")
