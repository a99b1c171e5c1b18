"""Whether the KV tier that workers are to have makes sense, for one group and for all of a host."""

from collections.abc import Callable, Sequence

from splitserve.errors import ConfigError
from splitserve.launch.checks import check_value
from splitserve.launch.group import WorkerGroup
from splitserve.tier.config import TierConfig

TIER_KEYS = ("kv_tier_memory_bytes", "kv_tier_disk_path", "kv_tier_disk_bytes")


def check_tier(named: Callable[[str], str], tier: TierConfig, enable_prefix_caching: bool) -> None:
    """Raises ConfigError that names the first wrong setting; ``named`` makes its name from that of
    a key."""
    memory, path, disk = map(named, TIER_KEYS)
    size = tier.memory_bytes
    check_value(memory, size, size >= 0, "must not be negative; 0 is without that level")
    if tier.disk_path is None:
        check_value(disk, tier.disk_bytes, tier.disk_bytes == 0, f"has no folder: add {path}")
    else:
        check_value(disk, tier.disk_bytes, tier.disk_bytes > 0, f"must be positive beside {path}")
    if not tier.wanted:
        return
    caching = enable_prefix_caching
    rule = "must be on where there is a KV tier: that lies behind the prefix cache"
    check_value(named("enable_prefix_caching"), caching, caching, rule)


def check_one_tier(groups: Sequence[WorkerGroup]) -> None:
    """Raises ConfigError unless all groups that have a tier have the same: a host's workers share
    its folders, and each keeps them within the size that it was given."""
    for key in TIER_KEYS:
        values = {getattr(group, key) for group in groups if group.kv_tier.wanted}
        if len(values) > 1:
            said = " and ".join(sorted("none" if one is None else str(one) for one in values))
            raise ConfigError(
                f"workers: those of one host share one KV tier and need one {key}, not {said}; "
                "give all groups that have a tier the same"
            )
