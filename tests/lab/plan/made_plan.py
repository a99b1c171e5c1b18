"""A small study for tests, and a way to change one place in it."""

import copy
import tomllib
from pathlib import Path
from typing import Any

from splitserve.lab.plan.read import parse_study
from splitserve.lab.plan.resolve import Plan, resolved

ROOT = Path(__file__).parents[3]
STUDIES = ROOT / "studies"

TEXT = """
[study]
id = "t"
question = "tail_itl"
checked_at = 2026-11-30T08:00:00+00:00
source = "a page, read on a day"
[model]
name = "smollm2"
[target]
prompt = "L"
output = "S"
load = 2.0
[slo]
ttft_ms = 1000
itl_ms = 100
[[arms]]
name = "one"
family = "single"
topology = "../topologies/2colocated.toml"
[[arms]]
name = "split"
family = "pd"
topology = "../topologies/1p1d.toml"
[comparison]
kind = "same_resources"
[workload.corpus]
requests = 200
warmup_requests = 10
prompt_tokens = { S = 64, M = 256, L = 1024 }
output_tokens = { S = 32, L = 128 }
[rollback]
target = "one"
[budget]
seconds = 100000
"""

URLS = """
[[arms]]
name = "one"
family = "single"
url = "http://127.0.0.1:8000"
facts = { gpus = 2, tensor_parallel_size = 2 }
[[arms]]
name = "split"
family = "pd"
url = "http://127.0.0.1:8001"
[arms.facts]
gpus = 2
prefill = 1
decode = 1
connector = "NixlConnector"
proxy = "p"
"""

CHUNKED = {"name": "chunks", "family": "chunked", "base": "one", "chunk_tokens": [64, 128]}

Data = dict[str, Any]


def data(**changes: object) -> Data:
    """The study with ``changes`` by path, as in ``arms__0__url``; None takes the key out."""
    made: Data = tomllib.loads(TEXT)
    for path, value in changes.items():
        put(made, path.split("__"), value)
    return made


def put(made: Data, path: list[str], value: object) -> None:
    place: Any = made
    for key in path[:-1]:
        place = place[int(key)] if key.isdigit() else place.setdefault(key, {})
    last: Any = int(path[-1]) if path[-1].isdigit() else path[-1]
    if value is None:
        del place[last]
    else:
        place[last] = copy.deepcopy(value)


def with_arm(arm: Data, **changes: object) -> Data:
    """The study with a further arm, changed besides."""
    made = data()
    made["arms"].append(copy.deepcopy(arm))
    for path, value in changes.items():
        put(made, path.split("__"), value)
    return made


def running(**changes: object) -> Data:
    """The study with two running URLs for arms."""
    made = data()
    made["arms"] = tomllib.loads(URLS)["arms"]
    for path, value in changes.items():
        put(made, path.split("__"), value)
    return made


def plan_of(made: Data, folder: Path = STUDIES, profile: str | None = None) -> Plan:
    return resolved(parse_study(made, profile), folder)
