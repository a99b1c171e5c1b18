"""What was decided, what it rests on, and what was asked."""

from collections.abc import Mapping
from typing import Final

from splitserve.lab.plan.phases import Cell, target_cell
from splitserve.lab.plan.study import THROUGHPUT
from splitserve.lab.report.blocks import Listing, Points, Section, Table, Text
from splitserve.lab.report.results import StudyResults
from splitserve.lab.report.samples import accepted
from splitserve.lab.report.sections.words import QUESTIONS, TAILS
from splitserve.lab.verdict.clauses import MEANINGS
from splitserve.lab.verdict.outcome import Clause, Outcome, Status, Verdict

HEADLINES: Final[Mapping[Outcome, str]] = {
    Outcome.ADOPT: "ADOPT, as a candidate",
    Outcome.KEEP_SINGLE: "KEEP SINGLE",
    Outcome.TRY_CHUNKED: "TRY CHUNKED PREFILL",
    Outcome.INCONCLUSIVE: "INCONCLUSIVE",
    Outcome.INVALID: "INVALID",
}

NOT_SAID: Final = (
    "Nothing about other models, hardware, connectors, loads or lengths than those measured.",
    "No claim that splitting raises throughput: throughput stands apart and decides nothing.",
    "No single score: each quantity keeps its own line.",
)

EXPERIMENTAL: Final = (
    "Prefill/decode separation is experimental, and may need a third-party connector."
)


def verdict(results: StudyResults) -> Section:
    """The line, the clauses with their evidence, and what none of it says."""
    found = results.verdict
    blocks: list[Text | Table | Listing] = [
        Text(f"{HEADLINES[found.outcome]} (exit code {found.exit_code})", strong=True),
        Text(found.reason),
    ]
    if found.weak:
        blocks.append(Text("Weak: B improves, and is not shown to meet its SLO.", strong=True))
    if found.more_pairs is not None:
        blocks.append(Text(f"About {found.more_pairs} more pairs would decide."))
    blocks.append(_clauses(found))
    heard = tuple(
        f"{one.name}: {one.says} {one.action}".strip() for one in found.readings if one.triggered
    )
    blocks.append(Listing("Readings triggered, and what to do next", heard or ("None.",)))
    out = tuple(
        f"Out of scope: {one.replace('_', ' ')}." for one in results.plan.study.study.out_of_scope
    )
    blocks.append(Listing("What this does not say", (*NOT_SAID, *out)))
    return Section("Verdict", tuple(blocks))


def _clauses(found: Verdict) -> Table:
    rows = tuple(
        (
            MEANINGS.get(clause.name, clause.name),
            clause.status.value,
            _marked(clause),
            clause.name,
        )
        for clause in found.clauses
    )
    columns = ("condition", "status", "evidence", "clause")
    note = "✓ it holds; ✗ it fails; ? it is not shown, which for ADOPT is as bad."
    return Table("All conditions must hold for ADOPT", columns, rows, note)


def _marked(clause: Clause) -> Points:
    lacks = "✗" if clause.status is Status.FAILS else "?"
    return Points(
        tuple(f"{lacks if says in clause.lacking else '✓'} {says}" for says in clause.evidence)
    )


def header(results: StudyResults) -> Section:
    """When, with what, and of what kind."""
    head = results.plan.study.study
    rows = [
        ("study", head.id),
        ("sources checked at", head.checked_at.isoformat()),
        ("source", head.source),
        ("report made at", results.made_at.isoformat(timespec="seconds")),
        ("lab, splitserve", _version(results)),
        *((f"servers of {label}", told) for label, told in _served(results)),
        ("class of the study", head.verification),
        ("profile", head.profile),
        ("third-party connector", "yes" if head.third_party_connector else "no"),
    ]
    notice = (Text(EXPERIMENTAL, strong=True),) if head.experimental else ()
    return Section("Date, versions and class", (Table("", ("item", "value"), tuple(rows)), *notice))


def _version(results: StudyResults) -> str:
    where = f"commit {results.commit}" if results.commit else "installed package, no commit known"
    return f"{results.version}, {where}"


def _served(results: StudyResults) -> list[tuple[str, str]]:
    """What each arm said of itself while it was measured, at ``/version`` where it has that."""
    told = []
    for arm in (results.plan.baseline, results.plan.split):
        ran = next((r.before for r in accepted(results) if r.run.arm == arm.label and r.before), {})
        version, commit = ran.get("arm.software.version"), ran.get("arm.software.commit")
        says = f"{version}, commit {commit or 'not told'}" if version else "version not told"
        told.append((arm.label, says))
    return told


def question(results: StudyResults) -> Section:
    """What is to be decided, at which cell, against which limits."""
    study = results.plan.study
    slo, target = study.slo, study.target
    rows = (
        ("question", QUESTIONS.get(study.study.question, study.study.question)),
        ("model", study.model.name),
        ("prompt", _length(target.prompt, study.workload.corpus.prompt_tokens)),
        ("output, at most", _length(target.output, study.workload.corpus.output_tokens)),
        ("load, requests", _load(target_cell(study))),
        ("TTFT limit", f"{slo.ttft_ms:g} ms, from when the request was due"),
        ("ITL limit", f"{slo.itl_ms:g} ms, for the {TAILS[results.slo.rule]}"),
        ("attainment", f"{100 * slo.attainment:g} % of all intended requests"),
        ("comparison", study.comparison.kind.replace("_", " ")),
    )
    blocks: list[Text | Table] = [Table("", ("item", "value"), rows)]
    if study.study.question == THROUGHPUT:
        blocks.append(
            Text(
                "Separation by itself is not claimed to raise throughput. Compare first: admission "
                "and queue limits, batching and chunk size, prefix caching, a quantised or smaller "
                "model, TP/DP shape, hardware."
            )
        )
    return Section("Question and target SLO", tuple(blocks))


def _length(name: str, bands: Mapping[str, int]) -> str:
    return f"{name}, {bands[name]} tokens" if name in bands else f"{name}, as in the file"


def _load(cell: Cell) -> str:
    if cell.concurrency is not None:
        return f"{cell.concurrency} under way at any time (closed loop)"
    return f"{cell.load} (open loop: requests are sent when due, whatever is under way)"
