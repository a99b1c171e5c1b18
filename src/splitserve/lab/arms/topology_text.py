"""A topology as the TOML file that ``splitserve up`` reads."""

import json
import re
from typing import Any

import msgspec

from splitserve.lab.plan.arms import plain_size
from splitserve.launch.topology import Topology


def topology_text(topology: Topology) -> str:
    """Reads back as ``observed`` of it. What is None is left out, as TOML has no such value."""
    plain = msgspec.to_builtins(observed(topology), enc_hook=plain_size)
    lines = [*_table("[model]", plain["model"]), *_table("[gateway]", plain["gateway"])]
    for group in plain["workers"]:
        lines += _table("[[workers]]", group)
    return "\n".join(lines) + "\n"


def observed(topology: Topology) -> Topology:
    """The same, telling with each answer where its time went: every arm pays that alike."""
    gateway = msgspec.structs.replace(topology.gateway, enable_per_request_metrics=True)
    return msgspec.structs.replace(topology, gateway=gateway)


def _table(head: str, values: dict[str, Any]) -> list[str]:
    said = [f"{_key(key)} = {_value(value)}" for key, value in values.items() if value is not None]
    return [head, *said, ""]


def _value(value: Any) -> str:
    if isinstance(value, dict):
        inside = (f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {', '.join(inside)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    # A number, a truth value or a text is written in TOML as it is in JSON.
    return json.dumps(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)
