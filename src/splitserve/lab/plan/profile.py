"""What the smoke profile leaves of a study, and whether the sample that is left carries it."""

from typing import Final

import msgspec

from splitserve.errors import ConfigError
from splitserve.lab.plan.rules.values import FEWEST_PAIRS
from splitserve.lab.plan.study import PD, SINGLE, SMOKE, Further, Metrics, Study
from splitserve.lab.stats.power import requests_needed
from splitserve.lab.stats.quantile import smallest_sample

SMOKE_REQUESTS: Final = 20
"""As many as carry the median."""

_WARMUP_REQUESTS: Final = 3
_WARMUP_S: Final = 2.0
_DRAIN_S: Final = 30.0
_AA_PAIRS: Final = 2


def with_profile(study: Study, profile: str) -> Study:
    """``study`` under ``profile``: as it is, or cut down to a demonstration that never adopts.

    Smoke keeps the two families, the target cell and the way back; rows, axes, search and faults
    go, and so do quantiles that fewer requests do not carry.
    """
    header = msgspec.structs.replace(study.study, profile=profile)
    if profile != SMOKE:
        return msgspec.structs.replace(study, study=header)
    corpus = study.workload.corpus
    corpus = msgspec.structs.replace(
        corpus,
        requests=min(corpus.requests, SMOKE_REQUESTS),
        warmup_requests=min(corpus.warmup_requests, _WARMUP_REQUESTS),
    )
    return msgspec.structs.replace(
        study,
        study=msgspec.structs.replace(header, adopt=False),
        arms=tuple(arm for arm in study.arms if arm.family in (SINGLE, PD)),
        axes=(),
        workload=msgspec.structs.replace(study.workload, corpus=corpus),
        metrics=_carried_metrics(study, corpus.requests),
        stats=msgspec.structs.replace(study.stats, pairs=FEWEST_PAIRS, aa_pairs=_AA_PAIRS),
        further=Further(),
    )


def check_sample(study: Study) -> None:
    """Raises ConfigError when the requests planned carry less than the plan wants to say."""
    requests = study.workload.corpus.requests
    for number, quantile in enumerate(study.metrics.quantiles):
        needed = smallest_sample(quantile)
        if requests < needed:
            raise ConfigError(
                f"metrics.quantiles[{number}]: quantile {quantile} needs {needed} requests a run, "
                f"and workload.corpus.requests is {requests}; raise that, or leave the quantile out"
            )
    if study.study.profile == SMOKE:
        return
    for key, what, share in (
        ("error_share", "errors", study.allowances.error_share),
        ("error_pp", "errors", study.allowances.error_pp / 100),
        ("kv_failure_share", "failed hand-offs", study.allowances.kv_failure_share),
    ):
        _check_rare(key, what, share, requests * study.stats.pairs)


def _check_rare(key: str, what: str, share: float, requests: int) -> None:
    needed = requests_needed(share)
    if requests < needed:
        raise ConfigError(
            f"allowances.{key}: to show that {what} stay below {share:.2%} takes {needed} requests "
            f"without one, and {requests} are planned per arm; raise stats.pairs or "
            "workload.corpus.requests, or allow more"
        )


def _carried_metrics(study: Study, requests: int) -> Metrics:
    metrics = study.metrics
    carried = tuple(p for p in metrics.quantiles if smallest_sample(p) <= requests)
    carried = carried or metrics.quantiles
    return msgspec.structs.replace(
        metrics,
        quantiles=carried,
        decided_at=max((p for p in carried if p <= metrics.decided_at), default=carried[0]),
        warmup_min_s=min(metrics.warmup_min_s, _WARMUP_S),
        drain_s=min(metrics.drain_s, _DRAIN_S),
    )
