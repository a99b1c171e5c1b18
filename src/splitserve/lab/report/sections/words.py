"""How values of a plan read in a sentence."""

from collections.abc import Mapping
from typing import Final

from splitserve.lab.measure.tail import TailRule

QUESTIONS: Final[Mapping[str, str]] = {
    "tail_itl": "does tail ITL improve?",
    "ttft": "does TTFT improve?",
    "both": "does tail ITL or TTFT improve?",
    "throughput": "does throughput improve?",
}

TAILS: Final[Mapping[TailRule, str]] = {
    TailRule.Q99: "99th percentile of an answer's gaps",
    TailRule.Q95: "95th percentile of an answer's gaps",
    TailRule.MAX: "longest gap of an answer",
}

METHODS: Final[Mapping[str, str]] = {
    "inverse_cdf": "inverse of the empirical distribution (type 1)",
    "plus_inf": "infinite in every latency quantile",
    "mser5": "then cut where the standard error is least (MSER-5)",
    "auto": "by what the machines allow (auto)",
}


def plainly(value: str) -> str:
    """A method's value in words, with its own name where there are none."""
    return METHODS.get(value, value.replace("_", " "))
