"""Parts of TTFT in the report, who pays, and when nothing may be shown."""

from dataclasses import replace

import msgspec
import pytest
from made_results import results

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.report.blocks import Section, Table, Text
from splitserve.lab.report.figure import Figure
from splitserve.lab.report.plots import Ecdf, Waterfall
from splitserve.lab.report.results import StudyResults
from splitserve.lab.report.sections import effects, phases
from splitserve.lab.report.svg import waterfall


def rows(section: Section, caption: str) -> dict[str, tuple[object, ...]]:
    found = next(b for b in section.blocks if isinstance(b, Table) and caption in b.caption)
    return {str(row[0]): row[1:] for row in found.rows}


def value(cell: object) -> float:
    assert isinstance(cell, Figure)
    assert cell.value is not None
    return cell.value


def told(made: StudyResults, side: str, **changes: float) -> StudyResults:
    """``made`` with other server times in the target's runs of ``side``."""

    def changed(record: RequestRecord) -> RequestRecord:
        return msgspec.structs.replace(record, metrics=(record.metrics or {}) | changes)

    runs = tuple(
        replace(one, records=tuple(map(changed, one.records)))
        if (one.run.series, one.run.side) == ("target", side)
        else one
        for one in made.runs
    )
    return replace(made, runs=runs)


def test_a_change_of_ttft_is_split_into_groups_that_add_up() -> None:
    change = rows(phases.attribution(results()), "Change of TTFT")
    assert list(change) == [
        "client",
        "proxy",
        "queue",
        "hand-off",
        "prefill",
        "residual",
        "TTFT",
    ]
    assert sum(value(row[0]) for name, row in change.items() if name != "TTFT") == pytest.approx(
        value(change["TTFT"][0])
    )
    assert value(change["hand-off"][0]) == pytest.approx(3.0)
    assert value(change["residual"][0]) == pytest.approx(0.0, abs=1e-9)


def test_the_hand_off_is_shown_per_request_and_in_the_first_gap() -> None:
    section = phases.attribution(results(requests=200))
    handoffs = rows(section, "KV hand-off")
    assert list(handoffs) == ["B: split"]
    half, most, *moved = map(value, handoffs["B: split"])
    assert 12 < half < most
    assert moved == pytest.approx([2.0, 2.0])
    gap = [b for b in section.blocks if isinstance(b, Waterfall)][-1]
    assert [name for name, _ in gap.rows[0].parts] == ["hand-off", "first decode step", "residual"]


def test_parts_that_do_not_account_for_the_time_are_not_shown() -> None:
    section = phases.attribution(told(results(), "B", prefill_time_ms=10.0))
    (why,) = (block.says for block in section.blocks if isinstance(block, Text))
    assert "Parts are not shown" in why
    assert "B: split: the median residual of 160 requests is" in why
    assert not any(isinstance(block, Table | Waterfall) for block in section.blocks)
    assert any(isinstance(block, Ecdf) for block in section.blocks)


def test_a_waterfall_has_parts_in_the_order_in_which_they_happen() -> None:
    section = phases.attribution(results())
    plot = next(block for block in section.blocks if isinstance(block, Waterfall))
    drawn = waterfall.draw(plot)
    names = ["gateway", "wait for room", "decode&#x27;s grant", "queue", "prefill", "residual"]
    assert [drawn.index(f" {name}</text>") for name in names] == sorted(
        drawn.index(f" {name}</text>") for name in names
    )


def test_who_pays_joins_the_same_request_of_both_arms() -> None:
    paid = rows(effects.differences(results()), "Who pays")
    ratio, worse, better = paid["TTFT"]
    assert isinstance(ratio, Figure)
    assert ratio.n == 4
    assert 1.0 < value(ratio) < 1.5
    assert value(worse) > value(better) > 0
    assert value(worse) + value(better) <= 100
    assert value(paid["tail ITL"][0]) < 1
