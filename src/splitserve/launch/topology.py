"""What was asked for: a deployment, as written in a TOML file or on the command line.

    [model]                      which model; the same for every worker
    [gateway]                    where the HTTP API listens
    [[workers]]                  one table per group of equal workers

Keys are those of the command line's flags; defaults stand here once. Unknown keys are errors.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from splitserve.errors import ConfigError
from splitserve.frontend.derender.parsers.registry import (
    AUTO,
    NONE,
    REASONING_PARSERS,
    TOOL_PARSERS,
)
from splitserve.launch.checks import check_value, one_of, reject_unknown_keys
from splitserve.launch.group import (
    AUTO_CONNECTOR,
    CONNECTORS,
    DEVICES,
    ENGINES,
    ROLES,
    VLLM,
    FakeCosts,
    WorkerGroup,
)
from splitserve.launch.group_checks import SHARE_RULE, check_fit, check_group, check_shards
from splitserve.launch.sizes import ByteSize, parse_size
from splitserve.launch.tier_checks import check_one_tier, check_tier
from splitserve.launch.vllm_checks import check_vllm_split

__all__ = [
    "AUTO_CONNECTOR",
    "CONNECTORS",
    "DEVICES",
    "DTYPES",
    "ENGINES",
    "LOAD_FORMATS",
    "POLICIES",
    "ROLES",
    "SHARE_RULE",
    "VLLM",
    "FakeCosts",
    "GatewayAsked",
    "ModelAsked",
    "Topology",
    "WorkerGroup",
    "check_fit",
    "check_shards",
    "check_tier",
    "checked",
    "parse_topology",
    "read_topology",
]

DTYPES = ("auto", "bfloat16", "float32")
LOAD_FORMATS = ("auto", "dummy")
POLICIES = ("cost", "least_loaded", "round_robin")


class ModelAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``name`` is one known to ``splitserve pull``, a folder, a GGUF file or a hub id.

    ``served_model_name`` is what clients call it; None means ``name``. ``max_model_len`` None takes
    the model's own. What would make two workers disagree about KV stands here and not per group.
    """

    name: str
    served_model_name: str | None = None
    dtype: str = "auto"
    max_model_len: int | None = None
    load_format: str = "auto"
    seed: int = 0
    block_size: int = 16

    @property
    def served_as(self) -> str:
        return self.served_model_name or self.name


class GatewayAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``port`` 0 takes a free one. ``request_timeout_s`` is a request's whole time. Parsers read
    the answers of chats: ``auto`` takes those that the model's chat template asks for.
    ``processes`` share one port, which then has to be named. ``vllm_api_key_file`` holds the key
    that vLLM instances ask for. ``enable_per_request_metrics``: answers tell where their time
    went."""

    host: str = "127.0.0.1"
    port: int = 8000
    policy: str = "least_loaded"
    request_timeout_s: float = 600.0
    ttft_deadline_s: float = 30.0
    max_queued: int = 256
    tool_call_parser: str = "auto"
    reasoning_parser: str = "auto"
    api_key_file: str | None = None
    processes: int = 1
    vllm_api_key_file: str | None = None
    enable_per_request_metrics: bool = False


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One gateway and its workers, all of one model."""

    model: ModelAsked
    workers: tuple[WorkerGroup, ...]
    gateway: GatewayAsked = GatewayAsked()


def read_topology(path: Path) -> Topology:
    """The topology in the file. Raises ConfigError that names file, key and cure."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from error
    try:
        return parse_topology(data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_topology(data: dict[str, Any]) -> Topology:
    """The topology in parsed TOML. Raises ConfigError that names the key's path."""
    reject_unknown_keys(data, Topology)
    try:
        topology = msgspec.convert(data, Topology, dec_hook=_decode_size)
    except msgspec.ValidationError as error:
        raise ConfigError(_in_toml_words(str(error))) from error
    return checked(topology)


def checked(topology: Topology) -> Topology:
    """The same topology, or a ConfigError that names the first wrong value and its path."""
    _check_model(topology.model)
    _check_gateway(topology.gateway)
    check_value("workers", topology.workers, bool(topology.workers), "needs at least one group")
    for number, group in enumerate(topology.workers):
        check_group(f"workers[{number}]", group)
    check_one_tier(topology.workers)
    roles = {group.role for group in topology.workers}
    _check_roles(roles)
    if "prefill" in roles:
        check_vllm_split(topology.workers)
        _check_one_connector([group for group in topology.workers if group.engine != VLLM])
    return topology


def _check_model(model: ModelAsked) -> None:
    check_value("model.name", model.name, bool(model.name.strip()), "must not be empty")
    one_of("model.dtype", model.dtype, DTYPES)
    one_of("model.load_format", model.load_format, LOAD_FORMATS)
    length = model.max_model_len
    check_value("model.max_model_len", length, length is None or length > 0, "must be positive")
    check_value("model.seed", model.seed, model.seed >= 0, "must not be negative")
    size = model.block_size
    check_value("model.block_size", size, 1 <= size <= 1024, "must be from 1 to 1024")


def _check_gateway(gateway: GatewayAsked) -> None:
    check_value("gateway.host", gateway.host, bool(gateway.host.strip()), "must not be empty")
    check_value("gateway.port", gateway.port, 0 <= gateway.port <= 65535, "must be 0 to 65535")
    one_of("gateway.policy", gateway.policy, POLICIES)
    count = gateway.processes
    check_value("gateway.processes", count, 1 <= count <= 64, "must be from 1 to 64")
    if count > 1 and gateway.port == 0:
        raise ConfigError("gateway.processes: several gateways need a gateway.port that is not 0")
    timeout_s = gateway.request_timeout_s
    check_value("gateway.request_timeout_s", timeout_s, timeout_s > 0, "must be positive")
    deadline_s, queued = gateway.ttft_deadline_s, gateway.max_queued
    check_value("gateway.ttft_deadline_s", deadline_s, deadline_s > 0, "must be positive")
    check_value("gateway.max_queued", queued, queued >= 0, "must not be negative")
    one_of("gateway.tool_call_parser", gateway.tool_call_parser, (AUTO, NONE, *TOOL_PARSERS))
    one_of("gateway.reasoning_parser", gateway.reasoning_parser, (AUTO, NONE, *REASONING_PARSERS))


def _check_one_connector(groups: Sequence[WorkerGroup]) -> None:
    """A prefill worker hands KV to all others that take requests."""
    connectors = sorted({group.chosen_connector for group in groups})
    if len(connectors) > 1:
        raise ConfigError(
            f"workers: they hand KV to each other and need one connector, not "
            f"{' and '.join(connectors)}; give all of them the same device"
        )


def _check_roles(roles: set[str]) -> None:
    for one, other in (("prefill", "decode"), ("decode", "prefill")):
        if one in roles and other not in roles and "colocated" not in roles:
            raise ConfigError(
                f'workers: a group with role "{one}" needs one with role "{other}" (or "colocated")'
            )


def _decode_size(kind: type, value: object) -> ByteSize:
    if kind is not ByteSize:
        raise NotImplementedError(f"no topology key has type {kind}")
    return parse_size(value)


def _in_toml_words(message: str) -> str:
    """msgspec's ``Expected `int`, got `str` - at `$.workers[0].count` `` as ``path: what``."""
    what, separator, place = message.partition(" - at `$")
    path = place.rstrip("`").lstrip(".")
    what = what.replace("Object missing required field", "needs the key")
    return f"{path}: {what}" if separator and path else what
