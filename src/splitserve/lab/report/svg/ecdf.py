"""Distribution of a sample: failures hold the curve below 1."""

import math
from collections.abc import Sequence
from typing import Final

from splitserve.lab.report.plots import Curve, Ecdf
from splitserve.lab.report.svg import canvas
from splitserve.lab.report.svg.scale import Scale, spanning, thinned
from splitserve.lab.stats.quantile import inverse_cdf

STEPS: Final = 300
FAR: Final = 3
"""A limit beyond so many times the slowest request is named, and not drawn to scale."""


def draw(plot: Ecdf) -> str:
    """Share of requests up to each value."""
    curves = [curve for curve in plot.curves if curve.values]
    x = _across(plot)
    y = Scale(0.0, 1.0, canvas.BOTTOM, canvas.TOP)
    parts = [
        *canvas.x_axis(x, f"{plot.quantity}, {plot.unit}", canvas.numbered(x)),
        *canvas.y_axis(y, "share of requests", canvas.numbered(y)),
    ]
    if not curves:
        return canvas.document(plot.title, [*parts, canvas.nothing()])
    if plot.limit is not None:
        parts += _limit(plot.limit, f"SLO {plot.limit:g} {plot.unit}", x)
    for number, curve in enumerate(curves):
        parts += _curve(curve.values, x, y, canvas.look(number))
    labels = [_label(curve) for curve in curves]
    return canvas.legended(plot.title, parts, labels)


def _across(plot: Ecdf) -> Scale:
    """From 0 to the slowest, and to the limit where that is not far beyond."""
    values = [value for curve in plot.curves for value in curve.values]
    slowest = max((value for value in values if math.isfinite(value)), default=math.inf)
    near = plot.limit is not None and plot.limit <= FAR * slowest
    limits = (plot.limit,) if plot.limit is not None and near else ()
    return spanning(values, canvas.LEFT, canvas.RIGHT, 0.0, *limits)


def _limit(limit: float, says: str, x: Scale) -> list[str]:
    at = x.at(limit)
    if limit > x.high:
        return [canvas.text(at - 4, canvas.TOP - 5, f"{says} →", "end")]
    place, side = (at - 4, "end") if at > canvas.WIDTH / 2 else (at + 4, "")
    return [
        canvas.line(at, canvas.TOP, at, canvas.BOTTOM, "limit", "3 3"),
        canvas.text(place, canvas.TOP - 5, says, side),
    ]


def _curve(values: Sequence[float], x: Scale, y: Scale, style: canvas.Look) -> list[str]:
    """Stairs, with the series' marker at the quartiles that are reached."""
    quartiles = [(inverse_cdf(values, p), p) for p in (0.25, 0.5, 0.75)]
    marks = [canvas.mark(x.at(v), y.at(p), style) for v, p in quartiles if math.isfinite(v)]
    return [canvas.path(_steps(values, x, y), style), *marks]


def _steps(values: Sequence[float], x: Scale, y: Scale) -> list[tuple[float, float]]:
    n = len(values)
    reached = sorted(value for value in values if math.isfinite(value))
    points = [(x.at(value), (at + 1) / n) for at, value in enumerate(reached)]
    height, stairs = 0.0, [(x.start, y.at(0.0))]
    for place, share in thinned(points, STEPS):
        stairs += [(place, y.at(height)), (place, y.at(share))]
        height = share
    return [*stairs, (x.end, y.at(height))]


def _label(curve: Curve) -> str:
    failed = sum(math.isinf(value) for value in curve.values)
    after = f", {failed} failed" if failed else ""
    return f"{curve.label} (n = {len(curve.values)}{after})"
