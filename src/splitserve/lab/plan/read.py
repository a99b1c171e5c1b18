"""STUDY.toml to a checked ``Study``. What it names (topologies, corpus) is read by ``resolved``."""

import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from splitserve.errors import ConfigError
from splitserve.lab.plan.profile import check_sample, with_profile
from splitserve.lab.plan.rules.brief import check_brief
from splitserve.lab.plan.rules.values import check_study
from splitserve.lab.plan.study import PROFILES, Study
from splitserve.launch.checks import one_of, reject_unknown_keys

_NEEDED: Final = {
    "study": "id, question, checked_at and source",
    "model": "the name of the model that every arm serves",
    "target": "prompt, output and load of the cell for which the decision is taken",
    "slo": "ttft_ms and itl_ms; without them nothing can be better or worse",
    "arms": "one table for each arm, at least one single and one pd",
    "comparison": "kind, same_resources or added_capacity",
    "workload": "a corpus, the same for every arm",
    "budget": "seconds, the most that all runs may take together",
}
"""Tables without which there is no study, and what belongs there."""

_LARGEST: Final = 2**53
"""Whole numbers up to here are the same in every program that reads the plan."""

_OF_REQUESTS: Final = {
    "workload", "corpus", "arrivals", "sessions", "sampling", "temperature", "seed", "ignore_eos",
    "prompt_tokens", "output_tokens", "max_tokens", "requests",
}  # fmt: skip
"""Keys by which an arm would get requests of its own."""


def read_study(path: Path, profile: str | None = None) -> Study:
    """The study in the file, under its own profile or another.

    Raises ConfigError that names file, key, cause and cure.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from error
    try:
        return parse_study(data, profile)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_study(data: dict[str, Any], profile: str | None = None) -> Study:
    """The study in parsed TOML, cut down where the profile says so.

    Raises ConfigError that names the key's path.
    """
    for table, content in _NEEDED.items():
        if table not in data:
            raise ConfigError(f"{table}: missing; it needs {content}")
    for path, value in _leaves("", data):
        _check_leaf(path, value)
    _reject_own_requests(data["arms"])
    _reject_double_axes(data.get("axes"))
    reject_unknown_keys(data, Study)
    try:
        study = msgspec.convert(data, Study)
    except msgspec.ValidationError as error:
        raise ConfigError(_in_toml_words(str(error))) from error
    check_study(study)
    check_brief(study)
    one_of("--profile", profile or study.study.profile, PROFILES)
    study = with_profile(study, profile or study.study.profile)
    check_sample(study)
    return study


def _reject_own_requests(arms: object) -> None:
    tables = arms if isinstance(arms, list) else []
    for number, table in enumerate(tables):
        own = sorted(_OF_REQUESTS & set(table)) if isinstance(table, dict) else []
        if own:
            raise ConfigError(
                f"arms[{number}].{own[0]}: every arm gets the same requests; "
                "say it once, in [workload]"
            )


def _reject_double_axes(axes: object) -> None:
    for number, table in enumerate(axes if isinstance(axes, list) else []):
        if isinstance(table, dict) and isinstance(table.get("name"), list):
            raise ConfigError(
                f"axes[{number}].name: one variable is changed at a time; write an axis for each"
            )


def _check_leaf(path: str, value: object) -> None:
    if not f"{path}{value}".isprintable():
        raise ConfigError(
            f"{path!r}: {value!r} has a line end or a control character; leave it out"
        )
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ConfigError(f"{path}: {value} is larger than any setting; the limit is {_LARGEST}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{path}: {value} is no number that can be compared; write a finite one")


def _leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    """Every value below ``value`` that is no table and no list, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}" if path else key, inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(f"{path}[{number}]", inner)
    else:
        yield path, value


def _in_toml_words(message: str) -> str:
    """msgspec's ``Expected `int`, got `str` - at `$.arms[0].url` `` as ``path: what``."""
    what, separator, place = message.partition(" - at `$")
    path = place.rstrip("`").lstrip(".")
    what = what.replace("Object missing required field", "needs the key")
    return f"{path}: {what}" if separator and path else what
