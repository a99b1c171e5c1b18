"""The SVG of any plot."""

from splitserve.lab.report import plots
from splitserve.lab.report.svg import ecdf, forest, order, rates, scatter, timeline, waterfall


def svg(plot: plots.Plot) -> str:
    """One ``<svg>`` element, without a namespace as HTML wants it."""
    match plot:
        case plots.Forest():
            return forest.draw(plot)
        case plots.Ecdf():
            return ecdf.draw(plot)
        case plots.Scatter():
            return scatter.draw(plot)
        case plots.Timeline():
            return timeline.draw(plot)
        case plots.Waterfall():
            return waterfall.draw(plot)
        case plots.Order():
            return order.draw(plot)
        case plots.Rates():
            return rates.draw(plot)
