"""What each plot shows, as plain numbers. How it is drawn is in ``svg``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForestRow:
    """``point`` and interval in logarithms of B/A; without an interval it is one pair."""

    label: str
    point: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Forest:
    """Ratios B/A. ``band``: what A differs from itself, in logarithms."""

    title: str
    rows: tuple[ForestRow, ...]
    band: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """A sample; failures are infinite."""

    label: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ecdf:
    """Shares of samples up to a value; failures hold a curve below 1. ``limit``: the SLO."""

    title: str
    quantity: str
    unit: str
    curves: tuple[Curve, ...]
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Scatter:
    """``points`` (a, b) of the same request in both arms; failures are infinite."""

    title: str
    quantity: str
    unit: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One answer: ``gaps`` (when, gap) in seconds; ``prefills`` (from, to) of other requests.

    ``reach_s``: the scale shows gaps up to this at least, so that two plots can be compared.
    """

    title: str
    gaps: tuple[tuple[float, float], ...]
    prefills: tuple[tuple[float, float], ...] = ()
    reach_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WaterfallRow:
    """``parts`` (name, seconds) one after the other, medians over ``n`` requests."""

    label: str
    n: int
    parts: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Where the time to the first token went."""

    title: str
    rows: tuple[WaterfallRow, ...]


@dataclass(frozen=True, slots=True)
class OrderPoint:
    """``position`` in runs from the study's start, ``value`` the logarithm of B/A of that pair."""

    position: float
    value: float
    series: str


@dataclass(frozen=True, slots=True)
class Order:
    """Effects over the order of runs, to see drift."""

    title: str
    points: tuple[OrderPoint, ...]
    band: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class RatePoint:
    """``share`` of ``n`` requests that kept the SLO at ``rate``, with its bounds."""

    rate: float
    share: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class RatesOfArm:
    """What one arm carried."""

    label: str
    points: tuple[RatePoint, ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """Attainment against rates in ``unit``; ``target``: the share that is asked for."""

    title: str
    unit: str
    target: float
    arms: tuple[RatesOfArm, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """``share`` of ``n`` requests that kept the SLO at ``row`` and ``column``."""

    row: str
    column: str
    share: float
    n: int


@dataclass(frozen=True, slots=True)
class Heat:
    """One panel (name, tiles) per arm. ``down`` and ``across`` name the two axes."""

    title: str
    down: str
    across: str
    panels: tuple[tuple[str, tuple[Tile, ...]], ...]


@dataclass(frozen=True, slots=True)
class Happenings:
    """``rows`` (what, when): seconds from the start of a run, all runs laid over each other."""

    title: str
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    until_s: float


@dataclass(frozen=True, slots=True)
class FunnelPoint:
    """The mean ``value`` after so many ``pairs``, and how far noise alone may carry it (all three
    in logarithms)."""

    pairs: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Funnel:
    """A against itself, pair after pair."""

    title: str
    points: tuple[FunnelPoint, ...]


@dataclass(frozen=True, slots=True)
class TransferFit:
    """seconds = ``start_s`` + bytes / ``bytes_per_s``."""

    start_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Transfers:
    """``points`` (bytes, seconds), one per hand-off; ``fit`` None where they have no slope."""

    title: str
    points: tuple[tuple[float, float], ...]
    fit: TransferFit | None = None


Plot = (
    Forest
    | Ecdf
    | Scatter
    | Timeline
    | Waterfall
    | Order
    | Rates
    | Heat
    | Happenings
    | Funnel
    | Transfers
)
