"""Any sample can be drawn, inside the frame, with title, axes, units and n."""

import math
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.lab.report.plots import (
    Curve,
    Ecdf,
    Forest,
    ForestRow,
    Funnel,
    FunnelPoint,
    Happenings,
    Heat,
    Order,
    OrderPoint,
    Plot,
    RatePoint,
    Rates,
    RatesOfArm,
    Scatter,
    Tile,
    Timeline,
    TransferFit,
    Transfers,
    Waterfall,
    WaterfallRow,
)
from splitserve.lab.report.svg import canvas
from splitserve.lab.report.svg.draw import svg
from splitserve.lab.report.svg.scale import Scale, ratio_ticks, spanning, thinned

COORDINATES = ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy")

anything = st.floats(min_value=0, allow_nan=False)
logs = st.floats(allow_nan=True)
finite = st.floats(min_value=-1e6, max_value=1e6)
seconds = st.floats(min_value=0, max_value=1e6)
words = st.text(max_size=12)
bands = st.none() | st.tuples(st.floats(max_value=0), st.floats(min_value=0)).filter(
    lambda band: not any(map(math.isnan, band))
)

ecdfs = st.builds(
    Ecdf,
    words,
    words,
    st.just("ms"),
    st.lists(st.builds(Curve, words, st.lists(anything, max_size=20).map(tuple)), max_size=6).map(
        tuple
    ),
    st.none() | anything,
)
forests = st.builds(
    Forest,
    words,
    st.lists(st.builds(ForestRow, words, logs, st.none() | finite, st.none() | finite)).map(tuple),
    bands,
)
scatters = st.builds(
    Scatter, words, words, words, st.lists(st.tuples(anything, anything)).map(tuple)
)
timelines = st.builds(
    Timeline,
    words,
    st.lists(st.tuples(seconds, seconds)).map(tuple),
    st.lists(st.tuples(seconds, seconds).map(lambda span: tuple(sorted(span)))).map(tuple),
)
waterfalls = st.builds(
    Waterfall,
    words,
    st.lists(
        st.builds(
            WaterfallRow,
            words,
            st.integers(0, 9),
            st.lists(st.tuples(words, finite), max_size=4).map(tuple),
        ),
        max_size=5,
    ).map(tuple),
)
orders = st.builds(
    Order,
    words,
    st.lists(st.builds(OrderPoint, finite, logs, words), max_size=12).map(tuple),
    bands,
)

shares = st.floats(0, 1)
rates = st.builds(
    Rates,
    words,
    words,
    shares,
    st.lists(
        st.builds(
            RatesOfArm,
            words,
            st.lists(
                st.builds(RatePoint, anything, shares, shares, shares, st.integers(1, 99)),
                max_size=6,
            ).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
)


names = st.sampled_from(["S", "M", "a load with a long name", ""])
heats = st.builds(
    Heat,
    words,
    words,
    words,
    st.lists(
        st.tuples(
            words,
            st.lists(st.builds(Tile, names, names, shares, st.integers(1, 99)), max_size=6).map(
                tuple
            ),
        ),
        max_size=2,
    ).map(tuple),
)
happenings = st.builds(
    Happenings,
    words,
    st.lists(st.tuples(words, st.lists(seconds).map(tuple)), max_size=8).map(tuple),
    seconds,
)
funnels = st.builds(
    Funnel,
    words,
    st.lists(st.builds(FunnelPoint, st.integers(1, 9), finite, finite, finite)).map(tuple),
)
transfers = st.builds(
    Transfers,
    words,
    st.lists(st.tuples(seconds, seconds)).map(tuple),
    st.none() | st.builds(TransferFit, finite, st.floats(1e-3, 1e12)),
)
first = ecdfs | forests | scatters | timelines | waterfalls | orders | rates
second = heats | happenings | funnels | transfers


@given(plot=first | second)
def test_any_sample_is_drawn_inside_the_frame(plot: Plot) -> None:
    root = ET.fromstring(svg(plot))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for element in root.iter():
        for name in COORDINATES:
            if name in element.attrib:
                assert -1 <= float(element.attrib[name]) <= max(width, height)
        for pair in element.attrib.get("points", "").split():
            x, y = map(float, pair.split(","))
            assert -10 <= x <= width + 10
            assert -10 <= y <= height + 10


EMPTY = (
    Ecdf("t", "TTFT", "ms", ()),
    Forest("t", ()),
    Scatter("t", "ITL", "ms", ()),
    Timeline("t", ()),
    Waterfall("t", ()),
    Order("t", ()),
    Rates("t", "1/s", 0.95, ()),
    Happenings("t", (), 0.0),
    Funnel("t", ()),
    Transfers("t", ()),
)


@pytest.mark.parametrize("plot", EMPTY, ids=lambda plot: type(plot).__name__)
def test_an_empty_plot_has_its_title_and_axis(plot: Plot) -> None:
    told = text_of(plot)
    assert told[0] == "t"
    assert any(", " in one or "ratio" in one for one in told)


def test_a_map_without_tiles_says_so() -> None:
    assert "nothing was measured" in text_of(Heat("t", "prompt", "load", ()))


def test_every_plot_has_a_title_and_a_description_for_those_who_do_not_see_it() -> None:
    root = ET.fromstring(svg(Ecdf("t", "TTFT", "ms", (Curve("A", (1.0, 2.0)),))))
    assert root.attrib["role"] == "img"
    assert [root[0].tag, root[0].text] == ["title", "t"]
    assert [root[1].tag, root[1].text] == ["desc", "A (n = 2)"]


def test_a_tile_has_its_number_and_more_ink_for_more() -> None:
    tiles = (Tile("S", "1/s", 0.25, 40), Tile("S", "2/s", 0.75, 60))
    plot = Heat("t", "prompt", "load", (("A: one", tiles),))
    told = text_of(plot)
    assert {"25 %", "n = 40", "75 %", "n = 60", "1/s", "2/s", "S"} <= set(told)
    inks = [float(e.attrib["fill-opacity"]) for e in ET.fromstring(svg(plot)).iter("rect")]
    assert 0 < inks[0] < inks[1] < 0.5


def test_what_happened_is_counted_by_kind_in_its_own_row() -> None:
    plot = Happenings("t", (("A: http_error 503", (1.0, 2.0)), ("B: truncated", (3.0,))), 4.0)
    assert {"A: http_error 503 (2)", "B: truncated (1)"} <= set(text_of(plot))
    marks = [e.tag for e in ET.fromstring(svg(plot)).iter() if "mark" in e.get("class", "")]
    assert marks == ["circle", "circle", "polygon"]


def test_the_fitted_line_is_told_with_its_units() -> None:
    plot = Transfers("t", ((2.0**20, 0.003), (2.0**21, 0.004)), TransferFit(0.002, 2.0**30))
    told = text_of(plot)
    assert "n = 2 hand-offs; dashed: 2 ms + size / 1024 MiB/s, least squares" in told
    assert "KV moved, MiB" in told
    assert any("no line fits" in one for one in text_of(Transfers("t", plot.points)))


def test_failures_hold_the_curve_below_one() -> None:
    plot = Ecdf("t", "TTFT", "ms", (Curve("B", (1.0, 2.0, math.inf, math.inf)),))
    line = next(e for e in ET.fromstring(svg(plot)).iter("polyline") if e.attrib["points"])
    heights = [float(pair.split(",")[1]) for pair in line.attrib["points"].split()]
    halfway = Scale(0, 1, canvas.BOTTOM, canvas.TOP).at(0.5)
    assert min(heights) == halfway
    assert heights[-1] == halfway
    assert "B (n = 4, 2 failed)" in text_of(plot)


def test_a_limit_far_beyond_is_named_and_does_not_squeeze_the_curves() -> None:
    far = Ecdf("t", "TTFT", "ms", (Curve("A", (1.0, 2.0)),), 4000.0)
    near = Ecdf("t", "TTFT", "ms", (Curve("A", (1.0, 2.0)),), 4.0)
    assert "SLO 4000 ms →" in text_of(far)
    assert "SLO 4 ms" in text_of(near)
    limits = [e for e in ET.fromstring(svg(near)).iter("line") if e.attrib["class"] == "limit"]
    assert len(limits) == 1


def test_all_failed_is_a_line_at_zero() -> None:
    plot = Ecdf("t", "TTFT", "ms", (Curve("B", (math.inf,)),))
    line = next(iter(ET.fromstring(svg(plot)).iter("polyline")))
    assert {pair.split(",")[1] for pair in line.attrib["points"].split()} == {f"{canvas.BOTTOM:g}"}


def test_series_differ_by_more_than_colour() -> None:
    looks = [canvas.look(k) for k in range(5)]
    assert len({look.dash for look in looks}) == len({look.marker for look in looks}) == 5


def test_axes_name_units_and_n_is_told() -> None:
    curve = Curve("A", (1.0, 2.0))
    assert "TTFT, ms" in text_of(Ecdf("t", "TTFT", "ms", (curve,)))
    told = text_of(Scatter("t", "tail ITL", "ms", ((2.0, 1.0), (1.0, math.inf))))
    assert "tail ITL in A, ms" in told
    assert any(
        one.startswith("n = 2 requests; below the diagonal B is less: 1; failed in an arm: 1")
        for one in told
    )
    told = text_of(Timeline("t", ((1.0, 0.5),), ((0.0, 2.0), (7.0, 8.0))))
    assert any("n = 1 gaps, longest 500 ms" in one and "1 other requests" in one for one in told)
    told = text_of(Waterfall("t", (WaterfallRow("A", 7, (("queue", 0.1),)),)))
    assert "A (n = 7)" in told
    assert "1 queue" in told


def test_a_pair_that_failed_in_b_is_named_so() -> None:
    told = text_of(Forest("t", (ForestRow("pair 1", math.inf), ForestRow("pair 2", math.nan))))
    assert "∞: B failed" in told
    assert "both failed" in told


@pytest.mark.parametrize(
    "plot",
    [
        Forest("t", (ForestRow("pair 1", 0.1),), (-math.inf, math.inf)),
        Order("t", (OrderPoint(1.0, 0.1, "TTFT"),), (-math.inf, math.inf)),
    ],
    ids=["forest", "order"],
)
def test_a_band_without_ends_covers_nothing(plot: Plot) -> None:
    assert not [e for e in ET.fromstring(svg(plot)).iter("rect") if e.attrib["class"] == "band"]


def test_the_longer_bar_is_the_longer_time() -> None:
    rows = (
        WaterfallRow("A", 1, (("queue", 0.1), ("rest", 0.2))),
        WaterfallRow("B", 1, (("queue", 0.4), ("rest", -0.01))),
    )
    boxes = list(ET.fromstring(svg(Waterfall("t", rows))).iter("rect"))[:4]
    widths = [float(box.attrib["width"]) for box in boxes]
    assert widths[0] == pytest.approx(widths[2] / 4, abs=0.3)
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.3)
    assert widths[3] == 0


@given(low=finite, span=st.floats(min_value=1e-3, max_value=1e6))
def test_ticks_are_inside_round_and_few(low: float, span: float) -> None:
    ticks = Scale(low, low + span, 0, 1).ticks()
    assert 1 <= len(ticks) <= 11
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)


@given(low=st.floats(-600, 600), span=st.floats(min_value=0.01, max_value=900))
def test_ratio_ticks_are_inside(low: float, span: float) -> None:
    for place, label in ratio_ticks(Scale(low, low + span, 0, 1)):
        assert low - 1e-6 <= place <= low + span + 1e-6
        assert float(label) > 0


@given(values=st.lists(anything), also=finite)
def test_a_scale_shows_what_must_be_seen(values: list[float], also: float) -> None:
    scale = spanning(values, 0, 100, also)
    assert scale.low < scale.high
    assert scale.low <= also <= scale.high


@given(count=st.integers(0, 400), most=st.integers(2, 50))
def test_thinning_keeps_both_ends(count: int, most: int) -> None:
    points = [(float(k), 0.0) for k in range(count)]
    kept = thinned(points, most)
    assert len(kept) <= most + 1
    assert kept[:1] == points[:1]
    assert kept[-1:] == points[-1:]


def test_a_title_is_escaped() -> None:
    written = svg(Forest('<a href="x">&', ()))
    assert not re.search("<a ", written)
    assert text_of(Forest('<a href="x">&', ()))[0] == '<a href="x">&'


def text_of(plot: Plot) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg(plot)).iter("text")]
