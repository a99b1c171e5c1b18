"""Whether the parts of a study make a comparison that the brief permits. Errors name the key.

What needs the topologies that the study names is in ``fairness``.
"""

import re
from itertools import pairwise
from typing import Final

from splitserve.errors import ConfigError
from splitserve.lab.plan.rules.workload import check_band
from splitserve.lab.plan.study import (
    AXES,
    CHUNKED,
    CONCURRENCY,
    FAMILIES,
    LAYOUT,
    OUTPUT_CAP,
    PD,
    PD_RATIO,
    PROMPT_LEN,
    PROXY,
    SINGLE,
    THROUGHPUT,
    Arm,
    Axis,
    Facts,
    Study,
    why_not_adopt,
)
from splitserve.launch.checks import check_value, one_of

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_RATIO: Final = re.compile(r"([1-9]\d*):([1-9]\d*)")

_FIRST_COMPARE: Final = (
    "queue limits, batching and chunk size, prefix caching, a smaller or quantised model, the "
    "TP/DP shape, hardware"
)


def check_brief(study: Study) -> None:
    """Raises ConfigError that names the first breach of the brief, and its cure."""
    _check_question(study)
    names = [arm.name for arm in study.arms]
    for number, arm in enumerate(study.arms):
        path = f"arms[{number}]"
        named = _NAME.fullmatch(arm.name) is not None
        check_value(f"{path}.name", arm.name, named, "must be letters, digits, _ and -")
        check_value(f"{path}.name", arm.name, names.count(arm.name) == 1, "is there twice")
        one_of(f"{path}.family", arm.family, FAMILIES)
        _check_source(path, arm)
        _check_row(path, arm, study)
    _check_families(study)
    _check_urls(study)
    _check_axes(study)
    _check_lengths(study)
    if study.rollback is not None:
        singles = [arm.name for arm in study.of_family(SINGLE)]
        one_of("rollback.target", study.rollback.target, singles)


def _check_question(study: Study) -> None:
    header = study.study
    if header.question == THROUGHPUT and not header.secondary:
        raise ConfigError(
            "study.question: splitting is not claimed to raise throughput; first compare "
            f"{_FIRST_COMPARE}; to go on all the same, set study.secondary = true"
        )
    reason = why_not_adopt(study)
    if header.adopt and reason is not None:
        raise ConfigError(f"study.adopt: ADOPT cannot be the verdict: {reason}; leave the key out")


def _check_source(path: str, arm: Arm) -> None:
    if arm.url is not None and arm.topology is not None:
        raise ConfigError(f"{path}: has a url and a topology; an arm is one or the other")
    if arm.family in (SINGLE, PD) and arm.url is None and arm.topology is None:
        raise ConfigError(f"{path}: needs a url, or a topology file that the lab starts")
    if arm.url is not None:
        is_http = re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", arm.url) is not None
        check_value(f"{path}.url", arm.url, is_http, "must be http(s)://host[:port][/path]")
        if arm.facts is None:
            raise ConfigError(
                f"{path}.facts: missing; a running url does not say what it has; "
                "write at least gpus or cores"
            )
        _check_facts(f"{path}.facts", arm.family, arm.facts)
    elif arm.facts is not None:
        raise ConfigError(f"{path}.facts: are read from the topology; only a url needs them")
    elif arm.served_as is not None:
        raise ConfigError(f"{path}.served_as: is read from the topology; only a url needs it")


def _check_facts(path: str, family: str, facts: Facts) -> None:
    for key, count in (
        ("gpus", facts.gpus),
        ("cores", facts.cores),
        ("prefill", facts.prefill),
        ("decode", facts.decode),
    ):
        check_value(f"{path}.{key}", count, count >= 0, "must not be negative")
    for key, size in (
        ("tensor_parallel_size", facts.tensor_parallel_size),
        ("pipeline_parallel_size", facts.pipeline_parallel_size),
    ):
        check_value(f"{path}.{key}", size, size > 0, "must be positive")
    known = facts.gpus + facts.cores > 0
    check_value(f"{path}.gpus", facts.gpus, known, "or cores must be above 0")
    instance = facts.tensor_parallel_size * facts.pipeline_parallel_size
    fits = not facts.gpus or facts.gpus >= instance
    check_value(f"{path}.gpus", facts.gpus, fits, f"are fewer than the {instance} of one instance")
    if family == PD:
        for key, count in (("prefill", facts.prefill), ("decode", facts.decode)):
            check_value(f"{path}.{key}", count, count > 0, "must be the number of instances")
        for key, text in (("connector", facts.connector), ("proxy", facts.proxy)):
            check_value(f"{path}.{key}", text, bool(text), "must be named for a pd arm")


def _check_row(path: str, arm: Arm, study: Study) -> None:
    """Rows belong to a single arm; single and pd to nobody."""
    if arm.family in (SINGLE, PD):
        check_value(f"{path}.base", arm.base, arm.base is None, "is for chunked and proxy rows")
        check_value(
            f"{path}.chunk_tokens",
            arm.chunk_tokens,
            not arm.chunk_tokens,
            f"is for chunked rows; add an arm with family = {CHUNKED!r} and base = {arm.name!r}",
        )
        return
    singles = [single.name for single in study.of_family(SINGLE)]
    if arm.base is None:
        raise ConfigError(f"{path}.base: missing; a {arm.family} row varies one single arm")
    one_of(f"{path}.base", arm.base, singles)
    base = study.arm(arm.base)
    started = base is not None and base.topology is not None
    if started == (arm.url is not None):
        cure = "leave url out" if started else "give the url at which it runs"
        raise ConfigError(
            f"{path}.url: {arm.base} is {'started' if started else 'running'}; {cure}"
        )
    if arm.family == PROXY:
        check_value(f"{path}.topology", arm.topology, arm.topology is None, "is that of base")
        check_value(
            f"{path}.chunk_tokens", arm.chunk_tokens, not arm.chunk_tokens, "is for chunked"
        )
    else:
        _check_chunks(path, arm)


def _check_chunks(path: str, arm: Arm) -> None:
    given = arm.chunk_tokens
    here = f"{path}.chunk_tokens"
    if arm.topology is not None or arm.url is not None:
        where = "topology" if arm.topology is not None else "facts"
        check_value(here, given, not given, f"goes with base alone; this row's is in its {where}")
        return
    check_value(here, given, bool(given), "must name at least one size")
    rising = all(a < b for a, b in pairwise(given))
    check_value(here, given, rising and min(given) > 0, "must be positive and rise")


def _check_families(study: Study) -> None:
    if not study.of_family(SINGLE):
        raise ConfigError(f'arms: no arm has family = "{SINGLE}"; it is what a split is judged by')
    splits = study.of_family(PD)
    if len(splits) != 1:
        raise ConfigError(
            f'arms: {len(splits)} arms have family = "{PD}"; a study has one: other ratios and '
            f'layouts are axes "{PD_RATIO}" and "{LAYOUT}", another question is another study'
        )


def _check_urls(study: Study) -> None:
    seen: dict[str, str] = {}
    for number, arm in enumerate(study.arms):
        url = (arm.url or "").rstrip("/")
        if url and url in seen:
            raise ConfigError(f"arms[{number}].url: {url} is that of {seen[url]} too")
        seen[url] = arm.name


def _check_axes(study: Study) -> None:
    last = -1
    for number, axis in enumerate(study.axes):
        path = f"axes[{number}]"
        one_of(f"{path}.name", axis.name, AXES)
        place = AXES.index(axis.name)
        if place == last:
            raise ConfigError(f"{path}.name: {axis.name} is there twice; put its values together")
        if place < last:
            raise ConfigError(
                f"{path}.name: {axis.name} comes before {AXES[last]}; "
                f"the order is {', '.join(AXES)}"
            )
        last = place
        once = len(set(axis.values)) == len(axis.values)
        check_value(f"{path}.values", axis.values, bool(axis.values) and once, "must be different")
        _check_values(path, axis, study)


def _check_values(path: str, axis: Axis, study: Study) -> None:
    corpus = study.workload.corpus
    ratio = axis.name == PD_RATIO
    if (axis.total is not None) != ratio:
        what = "missing; ratios share out a fixed number of workers" if ratio else "is for pd_ratio"
        raise ConfigError(f"{path}.total: {what}")
    if axis.name in (PD_RATIO, LAYOUT) and study.split.topology is None:
        raise ConfigError(
            f"{path}: {study.split.name} runs already and cannot be changed by the lab; "
            "give it a topology, or make a study for each"
        )
    for number, value in enumerate(axis.values):
        here = f"{path}.values[{number}]"
        if axis.name == CONCURRENCY:
            right = isinstance(value, int) and value > 0
            check_value(here, value, right, "must be a number of requests under way")
            continue
        if not isinstance(value, str):
            raise ConfigError(f"{here} must be text (got {value!r})")
        if axis.name == PROMPT_LEN:
            check_band(here, value, corpus.prompt_tokens, corpus)
        elif axis.name == OUTPUT_CAP:
            check_band(here, value, corpus.output_tokens, corpus)
        elif ratio:
            check_value(
                here, value, sum(ratio_of(value)) == axis.total, f"must add up to {axis.total}"
            )


def ratio_of(text: str) -> tuple[int, int]:
    """Prefill and decode workers of ``"1:3"``; (0, 0) when ``text`` is no ratio."""
    match = _RATIO.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _check_lengths(study: Study) -> None:
    most = study.model.max_model_len
    corpus = study.workload.corpus
    check_value("model.max_model_len", most, most is None or most > 0, "must be positive")
    if most is None:
        return
    longest = max(corpus.prompt_tokens.values(), default=0)
    longest += max(corpus.output_tokens.values(), default=0)
    if longest > most:
        raise ConfigError(
            f"workload.corpus.prompt_tokens: the longest prompt and answer are {longest} tokens "
            f"and model.max_model_len is {most}; shorten one of them"
        )
