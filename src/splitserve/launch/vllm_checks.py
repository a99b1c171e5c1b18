"""Whether groups with ``engine = "vllm"`` make sense, alone and beside the others."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from splitserve.errors import ConfigError
from splitserve.launch.checks import check_value, one_of
from splitserve.launch.group import AUTO_CONNECTOR, VLLM, WorkerGroup
from splitserve.launch.tier_checks import TIER_KEYS
from splitserve.router.workers.vllm.dialects.registry import dialect_for

FAILURE_POLICIES: Final = ("recompute", "fail")

_LAUNCH_KEYS: Final = ("command", "args", "env", "port", "side_channel_port", "devices", "count")
"""Of a process that is started."""

_VLLM_KEYS: Final = (
    *("command", "args", "env", "kv_connector", "kv_connector_extra_config"),
    *("kv_load_failure_policy", "port", "side_channel_port", "block_size"),
    *("startup_timeout_s", "url", "facts"),
)

_OURS: Final = ("--port", "--served-model-name", "--kv-transfer-config")
"""Flags that the gateway has to know the values of."""


def check_vllm_keys_unused(path: str, group: WorkerGroup) -> None:
    """Raises ConfigError for a key that an engine other than vLLM would not read."""
    for key, value in _changed(group, _VLLM_KEYS):
        check_value(f"{path}.{key}", value, False, f'is read by engine = "{VLLM}" only')


def check_vllm_group(path: str, group: WorkerGroup) -> None:
    """Raises ConfigError that names the first wrong key below ``path``."""
    rule = "is how native workers hand KV over; vLLM's key is kv_connector"
    connector = group.connector
    check_value(f"{path}.connector", connector, connector == AUTO_CONNECTOR, rule)
    for key, value in _changed(group, TIER_KEYS):
        rule = "is read by native workers; vLLM has tiers of its own (kv_connector, args)"
        check_value(f"{path}.{key}", value, False, rule)
    one_of(f"{path}.kv_load_failure_policy", group.kv_load_failure_policy, FAILURE_POLICIES)
    _check_kv_connector(path, group)
    if group.attached:
        _check_attached(path, group)
    else:
        _check_launched(path, group)
    for key, value in (
        ("block_size", group.block_size),
        ("startup_timeout_s", group.startup_timeout_s),
    ):
        check_value(f"{path}.{key}", value, value is None or value > 0, "must be positive")


def check_vllm_split(groups: Sequence[WorkerGroup]) -> None:
    """Raises ConfigError when KV could not go from a prefill worker to all that take requests."""
    engines = sorted({"vLLM" if group.engine == VLLM else "native" for group in groups})
    if len(engines) > 1:
        raise ConfigError(
            "workers: vLLM and native workers have no connector in common, so neither can prefill "
            'for the other; give all groups engine = "vllm", or none'
        )
    if engines == ["native"]:
        return
    _check_one("kv_connector", [group.chosen_kv_connector or "none" for group in groups])
    _check_one("block_size", [group.chosen_block_size for group in groups if not group.attached])


def _check_one(key: str, values: Sequence[object]) -> None:
    different = sorted({"vLLM's own" if value is None else str(value) for value in values})
    if len(different) > 1:
        raise ConfigError(
            f"workers: vLLM instances that hand KV to each other need one {key}, not "
            f"{' and '.join(different)}"
        )


def _check_kv_connector(path: str, group: WorkerGroup) -> None:
    if group.role == "colocated":
        return
    if not group.chosen_kv_connector:
        raise ConfigError(
            f'{path}.kv_connector: role "{group.role}" needs one; NixlConnector is the default'
        )
    try:
        dialect_for(group.kv_transfer())
    except ConfigError as error:
        raise ConfigError(f"{path}.kv_connector: {error}") from None


def _check_attached(path: str, group: WorkerGroup) -> None:
    for key, value in _changed(group, _LAUNCH_KEYS):
        rule = "is for instances that are started here, and url names some that run already"
        check_value(f"{path}.{key}", value, False, rule)
    for number, url in enumerate(group.url):
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.netloc) and not parts.query
        check_value(f"{path}.url[{number}]", url, right, "must be of the form http://host:port")
    repeated = len(set(group.url)) != len(group.url)
    check_value(f"{path}.url", list(group.url), not repeated, "names an instance twice")


def _check_launched(path: str, group: WorkerGroup) -> None:
    words = group.command_words
    right = bool(words) and all(word.strip() for word in words)
    check_value(f"{path}.command", group.command, right, "must name a program")
    for key, first in (("port", group.port), ("side_channel_port", group.side_channel_port)):
        inside = first is None or 0 < first <= 65536 - group.count
        check_value(f"{path}.{key}", first, inside, "must leave every worker a port below 65536")
    for flag in group.args:
        ours = flag.partition("=")[0].replace("_", "-") in _OURS
        check_value(
            f"{path}.args", flag, not ours, "must not have what other keys of this file say"
        )


def _changed(group: WorkerGroup, keys: Sequence[str]) -> list[tuple[str, Any]]:
    """Those of ``keys`` that are not as they are by themselves."""
    usual = msgspec.structs.asdict(WorkerGroup())
    given = msgspec.structs.asdict(group)
    return [(key, given[key]) for key in keys if given[key] != usual[key]]
