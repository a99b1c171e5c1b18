"""The requests of a study, which are the same for every arm. One table each of STUDY.toml.

[workload.corpus]      what is asked
[workload.arrivals]    when it is asked
[workload.sessions]    turns of one conversation; left out for single requests
[workload.sampling]    how it is asked
"""

from typing import Final

import msgspec

SYNTHETIC: Final = "synthetic"
LINE_SOURCES = ("azure_csv", "burstgpt_csv", "mooncake_jsonl", "messages_jsonl")
"""Files with one request a line."""

SOURCES = (SYNTHETIC, *LINE_SOURCES, "sharegpt_json")
TIMED_SOURCES = ("azure_csv", "burstgpt_csv", "mooncake_jsonl")
"""Those that say when each request came."""

PROCESSES = ("poisson", "gamma", "trace", "closed", "ramp")
TIES = ("uniform", "keep")
WHOLE: Final = "all"
"""The band that takes every length a file has."""


class Corpus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``requests`` are measured in each run, ``warmup_requests``, which are others, before them.

    ``prompt_tokens`` and ``output_tokens`` name lengths; of a file's rows a band takes those up to
    its length and above the next shorter band. ``shared_prefix`` is the share of a prompt that it
    has in common with others of its group, of which there are ``prefix_groups``.
    """

    source: str = SYNTHETIC
    file: str | None = None
    seed: int = 0
    requests: int = 600
    warmup_requests: int = 80
    prompt_tokens: dict[str, int] = {}
    output_tokens: dict[str, int] = {}
    shared_prefix: float = 0.0
    prefix_groups: int = 0


class Arrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``cv`` is the spread of gamma gaps over their mean. ``concurrency`` is read by ``closed``,
    ``ramp_to`` (a factor of the rate that the run ends with) by ``ramp``, ``spread_ties`` by
    ``trace``: stamps that several requests share are spread over the trace's tick, or kept."""

    process: str = "poisson"
    seed: int = 0
    cv: float = 1.0
    concurrency: int | None = None
    ramp_to: float = 2.0
    spread_ties: str = "uniform"


class Sessions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``turns`` requests one after the other, each with all before it in its prompt."""

    turns: int
    think_s: float = 0.0


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``ignore_eos`` forces the output cap, so that all requests of a cell have one length."""

    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = True


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    corpus: Corpus
    arrivals: Arrivals = Arrivals()
    sessions: Sessions | None = None
    sampling: Sampling = Sampling()
