"""Whether the arms, as their topologies make them, differ in the split and in nothing else."""

import re
from typing import Final

import msgspec

from splitserve.errors import ConfigError
from splitserve.lab.plan.arms import PlannedArm, Resources
from splitserve.lab.plan.config_diff import Difference, Kind, compare, confounders
from splitserve.lab.plan.study import CHUNKED, PD, SAME_RESOURCES, SINGLE, Study

CHUNK_KEY: Final = "max_num_batched_tokens"

_PLACEMENT: Final = ("devices", "cores")
"""Follows from a layout, and is no variable of its own."""

_LAYOUT: Final = ("tensor_parallel_size", "pipeline_parallel_size", "connector", "network")


def check_arms(study: Study, planned: tuple[PlannedArm, ...]) -> None:
    """Raises ConfigError for the first arm that would make the comparison unfair."""
    for arm in planned:
        _check_model(study, arm)
        _check_roles(arm)
    singles = [arm for arm in planned if arm.family == SINGLE]
    split = next(arm for arm in planned if arm.family == PD)
    for single in singles:
        _check_resources(study.comparison.kind, single, split)
        _check_confounders(single, split)
    for arm in planned:
        if arm.family not in (SINGLE, PD):
            _check_row(arm, next(one for one in singles if one.arm.name == arm.arm.base))


def check_variant(path: str, kind: str, split: PlannedArm, variant: PlannedArm) -> None:
    """Raises ConfigError unless ``variant`` is ``split`` in another layout of the same hardware.

    One variable at a time: parallel sizes, connector or network, and not two of them.
    """
    _check_roles(variant)
    if kind == SAME_RESOURCES and variant.resources != split.resources:
        raise ConfigError(
            f"{path}: takes {variant.resources.text()} and {split.label} {split.resources.text()}; "
            "keep the total, or make it a study of added capacity"
        )
    changed = {_variable(one.key) for one in _counted(compare(split.config, variant.config))}
    changed -= set(_PLACEMENT)
    foreign = sorted(changed - set(_LAYOUT))
    if foreign:
        raise ConfigError(f"{path}: changes {foreign[0]}, which this axis does not vary")
    if len(changed) != 1:
        what = " and ".join(sorted(changed)) or "nothing"
        raise ConfigError(f"{path}: changes {what}; an axis varies one thing at a time")


def check_total(path: str, kind: str, split: PlannedArm, variant: PlannedArm) -> None:
    """Raises ConfigError when another ratio takes other hardware in all."""
    if kind == SAME_RESOURCES and variant.resources != split.resources:
        raise ConfigError(
            f"{path}: takes {variant.resources.text()} and {split.label} {split.resources.text()}; "
            "ratios of the same total are compared, the rest is added capacity"
        )


def _check_model(study: Study, arm: PlannedArm) -> None:
    asked, has = msgspec.structs.asdict(study.model), msgspec.structs.asdict(arm.model)
    for key, value in asked.items():
        if None not in (value, has[key]) and value != has[key]:
            raise ConfigError(
                f"model.{key}: is {value!r}, and arm {arm.label} has {has[key]!r}; "
                "every arm serves the same model, tokenizer and quantisation"
            )


def _check_roles(arm: PlannedArm) -> None:
    if arm.topology is None:
        return
    roles = {group.role for group in arm.topology.workers}
    split = bool(roles & {"prefill", "decode"})
    if split != (arm.family == PD):
        have = ", ".join(sorted(roles))
        needs = "prefill and decode" if arm.family == PD else "only colocated"
        raise ConfigError(
            f"arm {arm.label}: family {arm.family} needs {needs} workers, its topology has {have}"
        )


def _check_resources(kind: str, single: PlannedArm, split: PlannedArm) -> None:
    left, right = single.resources, split.resources
    took = f"{single.label} takes {left.text()}, {split.label} {right.text()}"
    if left.gpus == right.gpus and (left.cores is None) != (right.cores is None):
        raise ConfigError(
            f"comparison.kind: {took}; whether that is the same cannot be said; "
            "give cores in both or in neither"
        )
    if kind == SAME_RESOURCES and not _equal(left, right):
        raise ConfigError(
            f'comparison.kind: "{kind}", but {took}; give both the same, or write '
            '"added_capacity", which is never taken for an improvement'
        )
    if kind != SAME_RESOURCES and _equal(left, right):
        raise ConfigError(f'comparison.kind: "{kind}", but {took}; write "{SAME_RESOURCES}"')


def _equal(left: Resources, right: Resources) -> bool:
    """Cores count where there are no GPUs: beside one they are not what is shared out."""
    return left.gpus == right.gpus and (left.gpus > 0 or left.cores == right.cores)


def _check_confounders(single: PlannedArm, split: PlannedArm) -> None:
    if single.started != split.started:
        # What is written of one cannot be compared with what runs; the servers are, before the run.
        return
    found = confounders(compare(single.config, split.config))
    if found:
        one = found[0]
        raise ConfigError(
            f"arms: {one.key} is {one.left!r} in {single.label} and {one.right!r} in "
            f"{split.label}, which is no part of the split; make it the same"
        )


def _check_row(row: PlannedArm, base: PlannedArm) -> None:
    changed = _counted(compare(base.config, row.config))
    if row.family == CHUNKED:
        other = [one for one in changed if not one.key.endswith(f".{CHUNK_KEY}")]
        what = f"varies {CHUNK_KEY} and nothing else"
    else:
        other = [one for one in changed if not one.key.startswith("proxy.")]
        what = "is its base behind a proxy and nothing else"
    if other:
        one = other[0]
        raise ConfigError(
            f"arm {row.label}: {one.key} is {one.right!r} and {one.left!r} in {base.label}; "
            f"this row {what}"
        )
    if not changed:
        raise ConfigError(f"arm {row.label}: is the same as {base.label}; it {what}")
    if row.resources != base.resources:
        raise ConfigError(
            f"arm {row.label}: takes {row.resources.text()} and {base.label} "
            f"{base.resources.text()}; this row {what}"
        )


def _counted(differences: tuple[Difference, ...]) -> list[Difference]:
    return [one for one in differences if one.kind is not Kind.RECORDED]


def _variable(key: str) -> str:
    """The variable that a setting belongs to: one connector has several settings."""
    setting = key.partition(".")[2]
    if re.match(r"(kv_)?connector", setting):
        return "connector"
    return "network" if setting.startswith("env.") else setting
