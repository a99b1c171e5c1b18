"""The placement policies by name."""

from collections.abc import Mapping
from typing import Final

from splitserve.errors import ConfigError
from splitserve.loading import load
from splitserve.router.policy.base import Policy

POLICIES: Final[Mapping[str, str]] = {
    "cost": "splitserve.router.policy.cost:ByCost",
    "least_loaded": "splitserve.router.policy.least_loaded:LeastLoaded",
    "round_robin": "splitserve.router.policy.round_robin:RoundRobin",
}


def create(name: str) -> Policy:
    """A new policy with its own memory. Raises ConfigError naming those there are."""
    target = POLICIES.get(name)
    if target is None:
        raise ConfigError(f"policy {name!r} is none of {', '.join(sorted(POLICIES))}")
    policy: Policy = load(target)()
    return policy
