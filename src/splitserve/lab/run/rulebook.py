"""The plan's rules in the words of the verdict: seconds for milliseconds, shares for points."""

from splitserve.lab.plan.study import Study
from splitserve.lab.verdict.rules import (
    Margins,
    Profile,
    Question,
    Resources,
    Rules,
    Slo,
    SmallestEffects,
    Verification,
)


def rules_of(study: Study) -> Rules:
    header, slo, allowed, sesoi = study.study, study.slo, study.allowances, study.stats.sesoi
    return Rules(
        slo=Slo(slo.ttft_ms / 1000, slo.itl_ms / 1000, slo.attainment),
        question=Question(header.question),
        profile=Profile(header.profile),
        verification=Verification(header.verification),
        resources=Resources(study.comparison.kind),
        effects=SmallestEffects(
            tail_itl_ratio=sesoi.tail_itl_ratio,
            ttft_ratio=sesoi.ttft_ratio,
            throughput_ratio=sesoi.throughput_ratio,
            attainment=sesoi.attainment_pp / 100,
        ),
        margins=Margins(
            error_difference=allowed.error_pp / 100,
            error_share=allowed.error_share,
            handoff_p95_s=allowed.kv_handoff_p95_ms / 1000,
            handoff_share_of_ttft=allowed.kv_share_of_ttft,
            handoff_failures=allowed.kv_failure_share,
            accepted_ttft_ratio=allowed.ttft_ratio,
            accepted_tail_itl_ratio=allowed.tail_itl_ratio,
            outputs_differ=allowed.output_differs_share,
            outputs_differ_under_load=allowed.output_differs_load_share,
        ),
        pairs=study.stats.pairs,
        aa_pairs=study.stats.aa_pairs,
        alpha=study.stats.alpha,
    )
