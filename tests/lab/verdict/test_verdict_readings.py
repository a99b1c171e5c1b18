"""The readings R1 to R22: each is triggered by its pattern, and only by it."""

from dataclasses import replace

import pytest
from made_study import INTENDED, RULES, SPLIT, pairs, run, study

from splitserve.lab.stats.shares import Count
from splitserve.lab.verdict.decide import decide
from splitserve.lab.verdict.evidence import Evidence, Handoffs, Signals
from splitserve.lab.verdict.outcome import Heard
from splitserve.lab.verdict.readings import READINGS
from splitserve.lab.verdict.rules import Question, Resources

NONE_FAILED = (Count(0, 1000),)


def signals(**changes: object) -> Evidence:
    return study(signals=Signals(**changes))  # type: ignore[arg-type]


def heard(evidence: Evidence) -> dict[str, Heard]:
    return {reading.name: reading for reading in decide(evidence).readings}


IDLE = run(tail_itl_s=0.020, ttft_s=0.5, attained=Count(999, INTENDED))

PATTERNS: dict[str, tuple[Evidence, ...]] = {
    "R1": (study(target=pairs(b=run(**SPLIT, ttft_s=1.8))),),
    "R2": (study(target=pairs(b=run(**SPLIT, ttft_s=0.6, errors=Count(10, INTENDED)))),),
    "R3": (study(),),
    "R4": (study(target=pairs(), short=pairs()),),
    "R5": (study(target=pairs(), hard=pairs()),),
    "R6": (
        study(chunked=pairs(b=run(**SPLIT)), chunked_split=pairs(a=run(**SPLIT))),
        # It meets the SLO, however much better the split is.
        study(
            chunked=pairs(b=run(**SPLIT)),
            chunked_split=pairs(a=run(**SPLIT), b=run(tail_itl_s=0.01)),
        ),
    ),
    "R7": (
        study(
            rules=replace(RULES, question=Question.TTFT), target=pairs(b=run(**SPLIT, ttft_s=1.8))
        ),
        study(target=pairs(a=run(tail_itl_s=0.04, ttft_s=3.0), b=run(ttft_s=4.0))),
    ),
    "R8": (
        study(handoffs=Handoffs((0.5, 0.6), NONE_FAILED)),
        study(handoffs=Handoffs((0.05, 0.05), NONE_FAILED, share_of_ttft=0.6)),
    ),
    "R9": (study(target=pairs(a=IDLE)),),
    "R10": (signals(recomputed_share=0.9),),
    "R11": (signals(frontend_cpu=0.97), signals(frontend_share=0.5)),
    "R12": (
        signals(prefill_busy=0.9, decode_busy=0.2),
        signals(prefill_busy=0.2, decode_busy=0.9),
    ),
    "R13": (signals(decode_preemptions=3), signals(decode_kv_usage=0.99)),
    "R14": (study(target=pairs(b=run(**SPLIT, first_gap_s=0.3))),),
    "R15": (
        signals(tokens_per_event_a=1.0, tokens_per_event_b=1.2),
        signals(tokens_per_event_a=1.2, tokens_per_event_b=1.0),
    ),
    "R16": (signals(cached_a=0.0, cached_b=0.1), signals(cached_a=0.1, cached_b=0.0)),
    "R17": (study(target=pairs(), closed_loop=pairs(b=run(**SPLIT))),),
    "R18": (
        signals(start_matters=True),
        study(target=pairs(b=run(**SPLIT), wobble=[0.03 * i for i in range(8)])),
    ),
    "R19": (study(handoffs=Handoffs((0.05,), NONE_FAILED, local_tokens=500.0)),),
    "R20": (study(rules=replace(RULES, resources=Resources.ADDED)),),
    "R21": (
        study(
            target=pairs(b=run(**SPLIT, ttft_s=1.8)),
            passthrough_split=pairs(a=run(ttft_s=1.8)),
        ),
    ),
    "R22": (
        signals(outputs_differ=Count(9, 100)),
        signals(
            outputs_differ=Count(0, 100),
            outputs_differ_under_load=Count(90, 300),
            outputs_differ_control=Count(10, 150),
        ),
    ),
}

QUIET: dict[str, tuple[Evidence, ...]] = {
    "R1": (study(),),
    "R2": (study(target=pairs(b=run(**SPLIT, ttft_s=0.6))),),
    "R3": (study(target=pairs()), study(target=pairs(b=run(**SPLIT, throughput=700.0)))),
    "R4": (study(short=pairs()), study(target=pairs(), short=pairs(), hard=pairs())),
    "R5": (study(hard=pairs(b=run(**SPLIT))),),
    "R6": (
        study(chunked=pairs(), chunked_split=pairs(b=run(**SPLIT))),
        study(target=pairs(), chunked=pairs(b=run(tail_itl_s=0.040)), chunked_split=pairs()),
        study(
            target=pairs(a=run(**SPLIT), b=run(tail_itl_s=0.02)),
            chunked=pairs(b=run(**SPLIT)),
            chunked_split=pairs(a=run(**SPLIT), b=run(tail_itl_s=0.01)),
        ),
    ),
    "R7": (study(), study(target=pairs(b=run(**SPLIT, ttft_s=1.8)))),
    "R8": (study(),),
    "R9": (study(), study(target=pairs(a=run(tail_itl_s=0.02, ttft_s=0.5)))),
    "R10": (signals(recomputed_share=0.1),),
    "R11": (signals(frontend_cpu=0.5, frontend_share=0.1),),
    "R12": (signals(prefill_busy=0.6, decode_busy=0.4),),
    "R13": (signals(decode_preemptions=0, decode_kv_usage=0.6),),
    "R14": (study(), study(target=pairs(b=run(ttft_s=1.8, first_gap_s=0.3)))),
    "R15": (
        signals(tokens_per_event_a=1.0, tokens_per_event_b=1.04),
        signals(tokens_per_event_a=1.0, tokens_per_event_b=1.5, rebinned=True),
    ),
    "R16": (signals(cached_a=0.100, cached_b=0.105),),
    "R17": (study(closed_loop=pairs(b=run(**SPLIT))),),
    "R18": (study(),),
    "R19": (study(),),
    "R20": (study(),),
    "R21": (
        study(passthrough_split=pairs()),
        study(target=pairs(b=run(ttft_s=1.8)), passthrough_split=pairs(b=run(ttft_s=1.8))),
    ),
    "R22": (
        signals(outputs_differ=Count(0, 100)),
        # Near ties fall as the batch does.
        signals(
            outputs_differ=Count(0, 100),
            outputs_differ_under_load=Count(45, 300),
            outputs_differ_control=Count(20, 150),
        ),
    ),
}

NAMES = [f"R{i}" for i in range(1, 23)]


def test_there_are_twenty_two_in_order_each_with_words() -> None:
    assert [reading.name for reading in READINGS] == NAMES
    assert all(reading.says and reading.action for reading in READINGS)


@pytest.mark.parametrize("name", NAMES)
def test_a_reading_is_triggered_by_its_pattern(name: str) -> None:
    assert [heard(evidence)[name].triggered for evidence in PATTERNS[name]] == [True] * len(
        PATTERNS[name]
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_reading_is_quiet_without_its_pattern(name: str) -> None:
    assert [heard(evidence)[name].triggered for evidence in QUIET[name]] == [False] * len(
        QUIET[name]
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name != "R20"])
def test_a_reading_without_its_measurement_is_not_taken_as_quiet(name: str) -> None:
    assert heard(Evidence(rules=RULES))[name].triggered is None
