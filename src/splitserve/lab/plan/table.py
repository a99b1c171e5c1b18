"""What is fixed between the arms, what may vary and what is recorded, with the plan's values.

The table of the brief, one row each for software, model, hardware, workload and routing. What the
plan cannot know is said by the servers; ``seen`` gives it, and it stands as None until then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from splitserve.lab.plan.arms import PlannedArm
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.plan.study import CONCURRENCY, LAYOUT, OUTPUT_CAP, PD_RATIO, PROMPT_LEN

Entry = tuple[str, str | None]
"""A name and its value; None while it is not known."""

_SAME: Final = "not varied"

CLASSES = ("software", "model", "hardware", "workload", "routing")

_SEEN_FIXED: Final = {
    "software": ("version", "commit", "python", "torch", "cuda", "driver"),
    "model": ("weights hash", "chat template hash", "kv cache dtype", "block size"),
    "hardware": ("gpu type", "gpu memory cap", "cpu", "network path"),
    "workload": ("arrival offsets hash",),
    "routing": ("http version", "proxy commit"),
}
_RECORDED: Final = {
    "software": ("start-up errors", "connector errors", "configuration diff"),
    "model": ("model id", "weights hash", "load time"),
    "hardware": ("GPU memory", "CPU per process", "network transfer", "queue length"),
    "workload": ("TTFT", "ITL", "tail ITL", "completion rate", "finish reasons", "realised rate"),
    "routing": ("request id", "P and D that served it", "KV transfer time", "retry reasons"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One class of things, each with name and value."""

    name: str
    fixed: tuple[Entry, ...]
    may_vary: tuple[Entry, ...]
    recorded: tuple[Entry, ...]


def table(plan: Plan, seen: Mapping[str, str] | None = None) -> tuple[Row, ...]:
    """The five rows. ``seen`` has what was observed, by ``class.name`` as in ``model.model id``."""
    known = seen or {}
    fixed = {
        "software": (("connector", _connector(plan.split)),),
        "model": _model(plan),
        "hardware": (("total", plan.baseline.resources.text()),),
        "workload": _workload(plan),
        "routing": _routing(plan),
    }
    return tuple(
        Row(
            name,
            (*_filled(known, name, fixed[name]), *_from(known, name, _SEEN_FIXED[name])),
            _may_vary(plan, name),
            _from(known, name, _RECORDED[name]),
        )
        for name in CLASSES
    )


def _filled(known: Mapping[str, str], row: str, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """``entries`` with what was seen where the plan says nothing."""
    return tuple(
        (name, known.get(f"{row}.{name}") if value is None else value) for name, value in entries
    )


def _from(known: Mapping[str, str], row: str, names: tuple[str, ...]) -> tuple[Entry, ...]:
    return tuple((name, known.get(f"{row}.{name}")) for name in names)


def _connector(split: PlannedArm) -> str | None:
    named = split.config.get("prefill.connector") or split.config.get("prefill[0].connector")
    return str(named) if named else None


def _model(plan: Plan) -> tuple[Entry, ...]:
    asked = msgspec.structs.asdict(plan.study.model)
    has = msgspec.structs.asdict(plan.baseline.model)
    return tuple((key, _text(asked[key] if asked[key] is not None else has[key])) for key in asked)


def _workload(plan: Plan) -> tuple[Entry, ...]:
    work, target = plan.study.workload, plan.study.target
    corpus = work.corpus
    entries: list[tuple[str, object]] = [
        ("corpus", corpus.file or f"{corpus.source}, seed {corpus.seed}"),
        ("corpus sha256", plan.corpus.sha256 if plan.corpus else "made from the seed"),
        ("requests a run", f"{corpus.requests}, after {corpus.warmup_requests} others"),
        ("prompt", _length(target.prompt, corpus.prompt_tokens)),
        ("output cap", _length(target.output, corpus.output_tokens)),
        ("temperature", work.sampling.temperature),
        ("seed", work.sampling.seed),
        ("arrivals", f"{work.arrivals.process}, seed {work.arrivals.seed}"),
        ("load", f"{target.load:g} {target.load_unit}"),
    ]
    if work.arrivals.concurrency is not None:
        entries[-1] = ("concurrency", work.arrivals.concurrency)
    return tuple((name, _text(value)) for name, value in entries)


def _routing(plan: Plan) -> tuple[Entry, ...]:
    routing, single, split = plan.study.routing, plan.baseline, plan.split
    timeouts = "/".join(
        f"{seconds:g}"
        for seconds in (
            routing.connect_timeout_s,
            routing.first_timeout_s,
            routing.gap_timeout_s,
            routing.total_timeout_s,
        )
    )
    return (
        ("endpoints", f"{_place(single)} | {_place(split)}"),
        ("timeouts connect/first/gap/total, s", timeouts),
        ("retries of the client", str(routing.client_retries)),
        ("id header", routing.id_header),
        ("policy", _text(single.config.get("gateway.policy"))),
        ("proxy", _text(split.config.get("proxy.name"))),
        ("proxy version", _text(split.config.get("proxy.version"))),
    )


def _may_vary(plan: Plan, row: str) -> tuple[Entry, ...]:
    axes = {axis.name: ", ".join(map(str, axis.values)) for axis in plan.study.axes}
    split = _layout(plan.split)
    layout = f"{_layout(plan.baseline)} | {split}"
    entries: dict[str, tuple[Entry, ...]] = {
        "software": (("role layout", layout),),
        "model": (("nothing", None),),
        "hardware": (
            ("GPUs given to P and D", split),
            ("TP/PP and network", axes.get(LAYOUT, _SAME)),
        ),
        "workload": (
            ("prompt length", axes.get(PROMPT_LEN, _SAME)),
            ("output length", axes.get(OUTPUT_CAP, _SAME)),
            ("concurrency", axes.get(CONCURRENCY, _SAME)),
        ),
        "routing": (("number of P and D", layout), ("ratios", axes.get(PD_RATIO, _SAME))),
    }
    return entries[row]


def _layout(arm: PlannedArm) -> str:
    """``2 colocated`` or ``1 prefill + 1 decode``."""
    if arm.topology is None:
        counts = [(role, arm.config.get(f"{role}.count")) for role in ("prefill", "decode")]
        told = " + ".join(f"{count} {role}" for role, count in counts if count)
        return told or "one endpoint"
    return " + ".join(f"{group.workers} {group.role}" for group in arm.topology.workers)


def _place(arm: PlannedArm) -> str:
    return arm.arm.url or f"{arm.label}, started from its topology"


def _length(name: str, bands: Mapping[str, int]) -> str:
    return f"{name} ({bands[name]} tokens)" if name in bands else f"{name} (as in the file)"


def _text(value: object) -> str | None:
    return None if value is None else str(value)
