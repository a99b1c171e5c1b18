"""A study with all that it names read, checked and hashed: what ``lab check`` approves."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from splitserve.errors import ConfigError
from splitserve.lab.plan.arms import (
    PlannedArm,
    plain_size,
    plan_arms,
    started,
    topology_at,
    with_ratio,
)
from splitserve.lab.plan.fairness import check_arms, check_total, check_variant
from splitserve.lab.plan.read import read_study
from splitserve.lab.plan.study import LAYOUT, PD, PD_RATIO, SINGLE, Study
from splitserve.lab.plan.workload import LINE_SOURCES, Corpus

SCHEMA: Final = "study/1"
"""Part of every hash: what the keys mean may change with it."""


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """``lines`` without blank ones; ``sha256`` of the bytes."""

    sha256: str
    lines: int


@dataclass(frozen=True, slots=True)
class Plan:
    """``variants`` are the pd arm's other ratios and layouts, by the axis value as written.
    ``digest`` names the plan: equal plans have equal digests, whatever their files look like."""

    study: Study
    arms: tuple[PlannedArm, ...]
    variants: Mapping[str, PlannedArm]
    corpus: CorpusFile | None
    digest: str

    @property
    def baseline(self) -> PlannedArm:
        return self.of_family(SINGLE)[0]

    @property
    def split(self) -> PlannedArm:
        return self.of_family(PD)[0]

    def of_family(self, family: str) -> tuple[PlannedArm, ...]:
        return tuple(arm for arm in self.arms if arm.family == family)


def read_plan(path: Path, profile: str | None = None) -> Plan:
    """The plan in STUDY.toml at ``path``; files in it are named from its folder.

    ``profile`` stands in for the file's own. Raises ConfigError that names the file, the key, the
    cause and the cure.
    """
    study = read_study(path, profile)
    try:
        return resolved(study, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def resolved(study: Study, folder: Path) -> Plan:
    """``study`` with its files, which are below ``folder``, read and compared."""
    arms = plan_arms(study, folder)
    check_arms(study, arms)
    split = next(arm for arm in arms if arm.family == PD)
    variants = _variants(study, split, folder)
    corpus = _corpus_file(study.workload.corpus, folder)
    digest = _digest(study, (*arms, *variants.values()), corpus)
    return Plan(study, arms, variants, corpus, digest)


def _variants(study: Study, split: PlannedArm, folder: Path) -> dict[str, PlannedArm]:
    variants: dict[str, PlannedArm] = {}
    kind = study.comparison.kind
    for number, axis in enumerate(study.axes):
        for place, value in enumerate(axis.values):
            path, text = f"axes[{number}].values[{place}]", str(value)
            label = f"{split.label}@{text}"
            if axis.name == PD_RATIO and split.topology is not None:
                changed = with_ratio(path, split.topology, text)
                variants[text] = started(label, split.arm, changed)
                check_total(path, kind, split, variants[text])
            elif axis.name == LAYOUT:
                variants[text] = started(label, split.arm, topology_at(path, folder, text))
                check_variant(path, kind, split, variants[text])
    return variants


def _corpus_file(corpus: Corpus, folder: Path) -> CorpusFile | None:
    if corpus.file is None:
        return None
    path = "workload.corpus.file"
    found = _hashed(path, folder / corpus.file)
    needed = corpus.requests + corpus.warmup_requests
    if corpus.source in LINE_SOURCES and found.lines < needed:
        raise ConfigError(
            f"{path}: {corpus.file} has {found.lines} lines, and one run takes {needed} requests; "
            "lower workload.corpus.requests, or take a longer file"
        )
    return found


def _hashed(path: str, file: Path) -> CorpusFile:
    digest, lines = hashlib.sha256(), 0
    try:
        with file.open("rb") as stream:
            for line in stream:
                digest.update(line)
                lines += bool(line.strip())
    except OSError as error:
        raise ConfigError(f"{path}: {file}: {error.strerror}") from error
    return CorpusFile(digest.hexdigest(), lines)


def _digest(study: Study, arms: tuple[PlannedArm, ...], corpus: CorpusFile | None) -> str:
    """SHA-256 over JSON with sorted keys: of values, not of how they were written."""
    content = {
        "schema": SCHEMA,
        "study": study,
        "topologies": {arm.label: arm.topology for arm in arms},
        "corpus": corpus.sha256 if corpus else None,
    }
    encoded = msgspec.json.encode(content, enc_hook=plain_size, order="sorted")
    return hashlib.sha256(encoded).hexdigest()
