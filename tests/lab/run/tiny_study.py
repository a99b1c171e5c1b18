"""Studies of a few seconds: engines that compute nothing, or a scripted server.

The limit of the first token is far off, so that a busy machine makes no client late.
"""

from pathlib import Path

from flow.tiny_model import make_model_folder

TEXT = """
[study]
id = "tiny"
question = "tail_itl"
checked_at = 2026-11-30T08:00:00+00:00
source = "a test"
[model]
name = "{model}"
[target]
prompt = "S"
output = "S"
load = 40.0
[slo]
ttft_ms = 250000
itl_ms = 1000
attainment = 0.5
{arms}
[comparison]
kind = "same_resources"
[workload.corpus]
requests = {requests}
warmup_requests = 4
prompt_tokens = {{ S = 16 }}
output_tokens = {{ S = 8 }}
[metrics]
quantiles = [0.5]
decided_at = 0.5
warmup_min_s = 0.1
warmup_rule = "fixed"
drain_s = 5
[stats]
pairs = 3
aa_pairs = 2
[allowances]
kv_failure_share = 0.9
error_pp = 30.0
error_share = 0.3
[state]
settle_s = 0
[routing]
connect_timeout_s = 1
first_timeout_s = 5
gap_timeout_s = 2
total_timeout_s = 8
{more}
[budget]
seconds = 100000
start_s = 1
"""

URL_ARMS = """
[[arms]]
name = "one"
family = "single"
url = "{single}"
facts = {{ cores = 2 }}
[[arms]]
name = "split"
family = "pd"
url = "{split}"
[arms.facts]
cores = 2
prefill = 1
decode = 1
connector = "shm"
proxy = "p"
"""

TOPOLOGY_ARMS = """
[[arms]]
name = "one"
family = "single"
topology = "one.toml"
[[arms]]
name = "split"
family = "pd"
topology = "split.toml"
"""

WORKER = """
[[workers]]
role = "{role}"
engine = "fake"
fake = {{ step_ms = 2, decode_us_per_seq = 10 }}
"""


def url_study(folder: Path, single: str, split: str, *, requests: int = 20, more: str = "") -> Path:
    """Two running URLs that serve a model named ``tiny``."""
    arms = URL_ARMS.format(single=single, split=split)
    file = folder / "study.toml"
    file.write_text(TEXT.format(model="tiny", arms=arms, requests=requests, more=more))
    return file


def topology_study(folder: Path, *, requests: int = 20, more: str = "") -> Path:
    """A colocated and a split deployment of fake engines, which the lab starts."""
    model = make_model_folder(folder / "model" / "tiny")
    head = f'[model]\nname = "{model}"\nserved_model_name = "tiny"\n'
    one = head + WORKER.format(role="colocated")
    split = head + WORKER.format(role="prefill") + WORKER.format(role="decode")
    (folder / "one.toml").write_text(one)
    (folder / "split.toml").write_text(split)
    file = folder / "study.toml"
    text = TEXT.format(model=model, arms=TOPOLOGY_ARMS, requests=requests, more=more)
    file.write_text(text)
    return file
