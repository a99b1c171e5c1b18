"""The SVG of any plot."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from splitserve.lab.report import plots
from splitserve.lab.report.svg import (
    ecdf,
    forest,
    funnel,
    happenings,
    heat,
    order,
    rates,
    scatter,
    timeline,
    transfers,
    waterfall,
)

_DRAWN: Final[Mapping[type, Callable[[Any], str]]] = {
    plots.Forest: forest.draw,
    plots.Ecdf: ecdf.draw,
    plots.Scatter: scatter.draw,
    plots.Timeline: timeline.draw,
    plots.Waterfall: waterfall.draw,
    plots.Order: order.draw,
    plots.Rates: rates.draw,
    plots.Heat: heat.draw,
    plots.Happenings: happenings.draw,
    plots.Funnel: funnel.draw,
    plots.Transfers: transfers.draw,
}


def svg(plot: plots.Plot) -> str:
    """One ``<svg>`` element, without a namespace as HTML wants it."""
    return _DRAWN[type(plot)](plot)
