"""Whether the search for the highest rate can show one."""

from splitserve.errors import ConfigError
from splitserve.lab.plan.study import Study
from splitserve.lab.stats.power import requests_needed


def check_search(study: Study) -> None:
    """Raises ConfigError where no rate could count as met.

    A rate is met when the lower bound of its attainment reaches the target. Few requests have no
    such bound, however good they are.
    """
    wanted, requests = study.slo.attainment, study.workload.corpus.requests
    needed = requests_needed(1 - wanted)
    if requests < needed:
        raise ConfigError(
            f"further.goodput_runs: to show an attainment of {wanted:g} takes {needed} requests a "
            f"run, all of them good, and workload.corpus.requests is {requests}; raise that, lower "
            "slo.attainment, or leave the search out"
        )
    if study.workload.arrivals.process == "ramp":
        raise ConfigError(
            "further.goodput_runs: a search looks for one rate, and workload.arrivals.process is "
            '"ramp"; take another process, or leave the search out'
        )
