"""What each word means, with its formula."""

from typing import Final

from splitserve.lab.report import estimates
from splitserve.lab.report.blocks import Section, Table
from splitserve.lab.report.results import StudyResults

DEFINITIONS: Final = "definitions/1"
"""Changes with the meaning of any word below."""

_WORDS: Final = (
    ("A, B", "single arm, split arm; a pair is one run of each with the same requests"),
    ("token event", "an event of the stream with at least one new token, at t_1 .. t_m"),
    ("TTFT, user", "t_1 - when the request was due; the client's own lag is in it"),
    ("TTFT, service", "t_1 - when the request was sent"),
    ("first gap", "t_2 - t_1: where a split that answers early hides its hand-off"),
    ("ITL", "t_k - t_(k-1), pooled over all requests of a run"),
    ("tail ITL", "a high order statistic within each answer, then a quantile over requests"),
    ("KV hand-off", "prefill done to decode having the KV it needs; not the wire time alone"),
    ("failure", "infinite in every latency quantile, and never left out"),
    ("quantile p", "inverse of the empirical distribution: the ceil(n p)-th smallest (type 1)"),
    ("refused", "fewer than 10 / (1 - p) values: the sample does not carry this quantile"),
    (estimates.TYPICAL, "geometric mean of one value per run; t interval of the logarithms"),
    (estimates.AVERAGE, "mean of one value per run; t interval"),
    (estimates.POOLED, "hits over requests of all runs together; Wilson's interval, describes"),
    (estimates.RATIO, "exp of the mean of ln Q_B - ln Q_A over pairs; t interval"),
    (estimates.DIFFERENCE, "mean of x_B - x_A over pairs; t interval"),
    (estimates.BY_ORDER, "median and order: where a run is infinite, or all pairs agree"),
    ("attainment", "good of all intended requests; good keeps every limit of the SLO"),
    ("goodput", "the greatest rate whose attainment's lower bound reaches the target"),
    ("throughput", "output tokens a second of the window; in its own table, decides nothing"),
    ("A/A band", "the interval of A against itself: the floor of noise"),
    ("void", "a run that was cut or disturbed; it counts for nothing and its pair runs again"),
)


def definitions(_: StudyResults) -> Section:
    """The words of this report."""
    return Section(
        "Definitions and formulas",
        (Table("", ("word", "meaning"), _WORDS, f"Version: {DEFINITIONS}."),),
    )
