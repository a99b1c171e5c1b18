"""What was decided, what it rests on, and what was asked."""

from collections.abc import Mapping
from typing import Final

from splitserve.lab.plan.phases import target_cell
from splitserve.lab.plan.study import THROUGHPUT
from splitserve.lab.report.blocks import Listing, Section, Table, Text
from splitserve.lab.report.results import StudyResults
from splitserve.lab.verdict.clauses import MEANINGS
from splitserve.lab.verdict.outcome import Outcome

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
    rows = tuple(
        (
            clause.name,
            MEANINGS.get(clause.name, clause.name),
            clause.status.value,
            "; ".join(clause.evidence),
        )
        for clause in found.clauses
    )
    columns = ("clause", "condition", "status", "evidence")
    blocks.append(Table("All clauses must hold for ADOPT", columns, rows))
    out = tuple(f"Out of scope: {one}." for one in results.plan.study.study.out_of_scope)
    blocks.append(Listing("What this does not say", (*NOT_SAID, *out)))
    return Section("Verdict", tuple(blocks))


def header(results: StudyResults) -> Section:
    """When, with what, and of what kind."""
    head = results.plan.study.study
    rows = [
        ("study", head.id),
        ("sources checked at", head.checked_at.isoformat()),
        ("source", head.source),
        ("report made at", results.made_at.isoformat(timespec="seconds")),
        ("splitserve", f"{results.version}, commit {results.commit}"),
        ("class", head.verification),
        ("profile", head.profile),
        ("third-party connector", "yes" if head.third_party_connector else "no"),
    ]
    notice = (Text(EXPERIMENTAL, strong=True),) if head.experimental else ()
    return Section("Header", (Table("", ("item", "value"), tuple(rows)), *notice))


def question(results: StudyResults) -> Section:
    """What is to be decided, at which cell, against which limits."""
    study = results.plan.study
    slo, target = study.slo, study.target
    rows = (
        ("question", study.study.question),
        ("model", study.model.name),
        ("target cell", target_cell(study).text()),
        ("prompt, output", f"{target.prompt}, {target.output}"),
        ("TTFT limit", f"{slo.ttft_ms:g} ms, from when the request was due"),
        ("ITL limit", f"{slo.itl_ms:g} ms, rule {slo.itl_rule}, {results.slo.rule.value} of gaps"),
        ("attainment", f"{100 * slo.attainment:g} % of all intended requests"),
        ("comparison", study.comparison.kind),
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
