"""What differs between the effective configurations of two arms, and whether it may.

A configuration is flat: ``model.dtype``, ``gateway.policy``, ``software.torch``, and per role
``colocated.max_num_seqs`` or ``decode.device``. A setting of a prefill or decode worker is compared
with that of the colocated worker, since that is the one it takes the place of.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Scalar = str | int | float | bool | None
Config = Mapping[str, Scalar]


class Kind(StrEnum):
    """ROLE is the split itself; a CONFOUNDER would be taken for it and blocks; RECORDED is shown
    and changes no time."""

    ROLE = "role"
    CONFOUNDER = "confounder"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Difference:
    """``left`` and ``right`` are None where that arm does not have the setting."""

    key: str
    left: Scalar
    right: Scalar
    kind: Kind
    why: str


_RULES: Final = (
    (Kind.ROLE, r"\w+\.(count|role)", "how many workers of each role"),
    (Kind.ROLE, r"\w+\.(devices|cores)", "the same hardware, dealt out to roles"),
    (Kind.ROLE, r"\w+\.(tensor|pipeline)_parallel_size", "how a role is spread over its GPUs"),
    (Kind.ROLE, r"\w+\.(kv_)?connector(_extra_config\b.*|_version)?", "how KV moves"),
    (Kind.ROLE, r"\w+\.kv_load_failure_policy", "what a decode worker does without the KV"),
    (Kind.ROLE, r"\w+\.facts\b.*", "what the connector has to know"),
    (Kind.ROLE, r"\w+\.kv_cache_memory_bytes", "a role's part of the KV memory"),
    (Kind.ROLE, r"\w+\.env\.(UCX_|NIXL_|VLLM_NIXL_|CUDA_VISIBLE_DEVICES).*", "how KV moves"),
    (Kind.ROLE, r"proxy\..*", "a split has a proxy, a single arm may do without"),
    (Kind.RECORDED, r".*\b(port|side_channel_port|host|url|pid|log|rundir)", "an address or name"),
    (Kind.RECORDED, r"model\.(served_model_name|load_time_s)", "an address or name"),
    (Kind.RECORDED, r"\w+\.(startup_timeout_s|drain_grace_s)", "not while requests are measured"),
    (Kind.RECORDED, r"gateway\.\w*api_key_file", "an address or name"),
)

_ROLE_KEY: Final = re.compile(r"(colocated|prefill|decode)(?:\[\d+\])?\.(.+)")
_NUMBERED: Final = re.compile(r"^(\w+)\[\d+\]\.")


def compare(left: Config, right: Config) -> tuple[Difference, ...]:
    """Every difference, in the order of keys."""
    differences = []
    for key, left_key, right_key in _pairs(left, right):
        values = left.get(left_key), right.get(right_key)
        # True == 1 in Python, not in a configuration.
        if values[0] != values[1] or type(values[0]) is not type(values[1]):
            kind, why = classify(key)
            differences.append(Difference(key, values[0], values[1], kind, why))
    return tuple(differences)


def confounders(differences: tuple[Difference, ...]) -> tuple[Difference, ...]:
    return tuple(one for one in differences if one.kind is Kind.CONFOUNDER)


def classify(key: str) -> tuple[Kind, str]:
    """Of which kind a difference in ``key`` is, and why. What no rule knows is a confounder."""
    plain = _NUMBERED.sub(r"\1.", key)
    for kind, pattern, why in _RULES:
        if re.fullmatch(pattern, plain):
            return kind, why
    return Kind.CONFOUNDER, "not part of the split, and it may change times or answers"


def _pairs(left: Config, right: Config) -> Iterator[tuple[str, str, str]]:
    """The name of each comparison, and the key that it has on either side."""
    only_right = {key: _stand_in(key, left) for key in right.keys() - left.keys()}
    only_left = {key: _stand_in(key, right) for key in left.keys() - right.keys()}
    compared = {*only_right.values(), *only_left.values()}
    for key in sorted(left.keys() | right.keys()):
        if key in only_right and (only_right[key] is not None or key not in compared):
            yield key, only_right[key] or key, key
        elif key in only_left and (only_left[key] is not None or key not in compared):
            yield key, key, only_left[key] or key
        elif key in left and key in right:
            yield key, key, key


def _stand_in(key: str, other: Config) -> str | None:
    """Where ``other`` has the setting ``key`` for the workers whose place these take."""
    match = _ROLE_KEY.fullmatch(key)
    if match is None:
        return None
    places = (f"{match[1]}.{match[2]}", f"colocated.{match[2]}")
    return next((place for place in places if place in other), None)
