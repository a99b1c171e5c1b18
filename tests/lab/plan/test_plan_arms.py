"""Arms: what makes a comparison fair, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from made_plan import CHUNKED, Data, data, plan_of, running, with_arm

from splitserve.errors import ConfigError
from splitserve.lab.plan.arms import Resources

TOPOLOGIES = "../topologies"


def refused(made: Data, folder: Path | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        plan_of(made, folder) if folder else plan_of(made)
    return str(error.value)


def topology(folder: Path, name: str, text: str) -> str:
    """Writes a topology of the demo model into ``folder``; gives its name."""
    (folder / name).write_text('[model]\nname = "smollm2"\n' + text)
    return name


SINGLE_CUDA = '[[workers]]\ndevice = "cuda"\n'
SPLIT_CUDA = """
[[workers]]
role = "prefill"
device = "cuda"
[[workers]]
role = "decode"
device = "cuda"
"""


def on_gpus(folder: Path, single: str, split: str, **changes: object) -> Data:
    one, two = topology(folder, "one.toml", single), topology(folder, "two.toml", split)
    return data(arms__0__topology=one, arms__1__topology=two, **changes)


def test_two_replicas_against_one_and_one_on_the_same_cores_is_fair() -> None:
    plan = plan_of(data())
    assert [arm.label for arm in plan.arms] == ["one", "split"]
    assert plan.baseline.resources == plan.split.resources == Resources(0, None)
    assert plan.baseline.model.name == "smollm2"


def test_another_model_in_one_arm_is_refused() -> None:
    says = refused(data(arms__1__topology=f"{TOPOLOGIES}/cuda-1p1d.toml"))
    assert says.startswith("model.name: is 'smollm2', and arm split has 'Qwen/Qwen2.5-7B-Instruct'")


@pytest.mark.parametrize(
    ("key", "value"),
    [("tokenizer", "other"), ("quantization", "fp8"), ("revision", "abc"), ("dtype", "float32")],
)
def test_a_running_arm_that_serves_something_else_is_refused(key: str, value: str) -> None:
    says = refused(running(**{f"model__{key}": "x", f"arms__1__facts__{key}": value}))
    assert says.startswith(f"model.{key}: is 'x', and arm split has {value!r}")


@pytest.mark.parametrize("key", ["tokenizer", "quantization"])
def test_running_arms_that_differ_where_the_plan_is_silent_are_refused(key: str) -> None:
    made = running(**{f"arms__0__facts__{key}": "a", f"arms__1__facts__{key}": "b"})
    assert refused(made).startswith(f"arms: model.{key} is 'a' in one and 'b' in split")


def test_another_setting_in_one_arm_is_refused(tmp_path: Path) -> None:
    single = '[gateway]\npolicy = "round_robin"\n[[workers]]\ncount = 2\n'
    split = '[[workers]]\nrole = "prefill"\n[[workers]]\nrole = "decode"\n'
    says = refused(on_gpus(tmp_path, single, split), tmp_path)
    assert says.startswith("arms: gateway.policy is 'round_robin' in one and 'least_loaded' in")


def test_a_default_written_out_is_the_same_configuration(tmp_path: Path) -> None:
    single = "[[workers]]\ncount = 2\nmax_num_batched_tokens = 512\n"
    split = '[[workers]]\nrole = "prefill"\n[[workers]]\nrole = "decode"\n'
    plan = plan_of(on_gpus(tmp_path, single, split), tmp_path)
    assert plan.baseline.config["colocated.max_num_batched_tokens"] == 512


def test_added_gpus_cannot_be_called_the_same_resources(tmp_path: Path) -> None:
    made = on_gpus(tmp_path, SINGLE_CUDA, SPLIT_CUDA)
    says = refused(made, tmp_path)
    assert '"same_resources", but one takes 1 GPU, split 2 GPUs; give both the same' in says
    made["comparison"]["kind"] = "added_capacity"
    assert not plan_of(made, tmp_path).study.may_adopt


def test_the_same_gpus_cannot_be_called_added_capacity(tmp_path: Path) -> None:
    single = SINGLE_CUDA + "count = 2\n"
    made = on_gpus(tmp_path, single, SPLIT_CUDA, comparison__kind="added_capacity")
    says = refused(made, tmp_path)
    assert says == (
        'comparison.kind: "added_capacity", but one takes 2 GPUs, split 2 GPUs; '
        'write "same_resources"'
    )


def test_roles_that_share_a_gpu_take_one(tmp_path: Path) -> None:
    shared = SPLIT_CUDA.replace('"cuda"\n', '"cuda"\ndevices = [0]\n')
    assert plan_of(on_gpus(tmp_path, SINGLE_CUDA, shared), tmp_path).split.resources.gpus == 1


def test_cores_named_in_one_arm_only_cannot_be_compared(tmp_path: Path) -> None:
    split = (
        '[[workers]]\nrole = "prefill"\ncores = [0]\n[[workers]]\nrole = "decode"\ncores = [1]\n'
    )
    says = refused(on_gpus(tmp_path, "[[workers]]\ncount = 2\n", split), tmp_path)
    assert "one takes all cores, split 2 cores; whether that is the same cannot be said" in says


@pytest.mark.parametrize(
    ("arm", "file", "needs"),
    [(0, "1p1d", "only colocated"), (1, "2colocated", "prefill and decode")],
)
def test_a_family_is_what_its_topology_says(arm: int, file: str, needs: str) -> None:
    says = refused(data(**{f"arms__{arm}__topology": f"{TOPOLOGIES}/{file}.toml"}))
    assert f"needs {needs} workers" in says


def test_each_chunk_size_is_a_row_of_its_own() -> None:
    plan = plan_of(with_arm(CHUNKED))
    rows = plan.of_family("chunked")
    assert [row.label for row in rows] == ["chunks@64", "chunks@128"]
    assert [row.config["colocated.max_num_batched_tokens"] for row in rows] == [64, 128]


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ("max_num_seqs = 8\n", "max_num_seqs"),
        ("enable_prefix_caching = false\n", "enable_prefix_caching"),
    ],
)
def test_a_chunked_row_that_varies_more_than_the_chunk_is_refused(
    tmp_path: Path, extra: str, key: str
) -> None:
    split = '[[workers]]\nrole = "prefill"\n[[workers]]\nrole = "decode"\n'
    made = on_gpus(tmp_path, "[[workers]]\ncount = 2\n", split)
    text = "[[workers]]\ncount = 2\nmax_num_batched_tokens = 64\n"
    row = {"name": "chunks", "family": "chunked", "base": "one"}
    made["arms"].append({**row, "topology": topology(tmp_path, "chunked.toml", text)})
    assert [arm.label for arm in plan_of(made, tmp_path).of_family("chunked")] == ["chunks"]
    topology(tmp_path, "chunked.toml", text + extra)
    says = refused(made, tmp_path)
    assert says.startswith(f"arm chunks: colocated.{key} is")
    assert says.endswith("this row varies max_num_batched_tokens and nothing else")


def test_a_chunked_row_at_the_size_of_its_base_is_refused() -> None:
    says = refused(with_arm({**CHUNKED, "chunk_tokens": [512]}))
    assert says.startswith("arm chunks@512: is the same as one")


def test_a_proxy_row_is_its_base_behind_a_proxy() -> None:
    plan = plan_of(with_arm({"name": "px", "family": "proxy", "base": "one"}))
    (row,) = plan.of_family("proxy")
    assert row.topology == plan.baseline.topology
    assert row.config["proxy.name"] == "pass-through"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arms__1__url": "http://h:1"}, "arms[1]: has a url and a topology"),
        ({"arms__0__topology": None}, "arms[0]: needs a url, or a topology file"),
        ({"arms__0__facts": {"gpus": 1}}, "arms[0].facts: are read from the topology"),
        ({"arms__0__served_as": "x"}, "arms[0].served_as: is read from the topology"),
        ({"arms__0__chunk_tokens": [8]}, "arms[0].chunk_tokens is for chunked rows"),
        ({"arms__0__base": "split"}, "arms[0].base is for chunked and proxy rows"),
        ({"arms__0__name": "a/b"}, "arms[0].name must be letters, digits"),
        ({"arms__0__name": "split"}, "arms[0].name is there twice"),
        ({"arms__0__family": "pd"}, "arms: no arm has family"),
        ({"arms__1__family": "single"}, "arms: 0 arms have family"),
        ({"arms__0__topology": "nope.toml"}, "arms[0].topology: "),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_an_arm_that_makes_no_sense_is_refused(changes: dict[str, Any], says: str) -> None:
    assert refused(data(**changes)).startswith(says)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arms__0__facts": None}, "arms[0].facts: missing; a running url does not say"),
        ({"arms__0__facts": {"tensor_parallel_size": 1}}, "arms[0].facts.gpus or cores must be"),
        ({"arms__0__facts__gpus": 1}, "arms[0].facts.gpus are fewer than the 2 of one instance"),
        ({"arms__0__url": "h:8000"}, "arms[0].url must be http(s)://host"),
        ({"arms__1__url": "http://127.0.0.1:8000/"}, "arms[1].url: http://127.0.0.1:8000 is that"),
        ({"arms__1__facts__connector": None}, "arms[1].facts.connector must be named"),
        ({"arms__1__facts__prefill": 0}, "arms[1].facts.prefill must be the number"),
        ({"arms__1__facts__gpus": 3}, 'comparison.kind: "same_resources", but one takes 2 GPUs'),
        ({"arms__1__facts__settings": {"cuda": "13"}}, "arms: settings.cuda is None in one"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_running_url_has_to_be_described(changes: dict[str, Any], says: str) -> None:
    plan_of(running())
    assert refused(running(**changes)).startswith(says)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"base": None}, "arms[2].base: missing"),
        ({"base": "split"}, "arms[2].base must be one of one"),
        ({"chunk_tokens": []}, "arms[2].chunk_tokens must name at least one size"),
        ({"chunk_tokens": [128, 64]}, "arms[2].chunk_tokens must be positive and rise"),
        ({"family": "proxy"}, "arms[2].chunk_tokens is for chunked"),
    ],
    ids=["no-base", "base-is-pd", "no-sizes", "falling", "proxy"],
)
def test_a_row_that_makes_no_sense_is_refused(row: dict[str, Any], says: str) -> None:
    changed = {key: value for key, value in {**CHUNKED, **row}.items() if value is not None}
    assert refused(with_arm(changed)).startswith(says)


def test_ratios_change_counts_only_and_keep_the_total() -> None:
    axes = [{"name": "pd_ratio", "values": ["1:3", "2:2"], "total": 4}]
    plan = plan_of(data(axes=axes, arms__1__topology=f"{TOPOLOGIES}/2p2d.toml"))
    assert [arm.label for arm in plan.variants.values()] == ["split@1:3", "split@2:2"]
    config = plan.variants["1:3"].config
    assert (config["prefill.count"], config["decode.count"]) == (1, 3)


def test_ratios_of_more_gpus_than_the_split_has_are_refused(tmp_path: Path) -> None:
    axes = [{"name": "pd_ratio", "values": ["1:3"], "total": 4}]
    made = on_gpus(tmp_path, SINGLE_CUDA + "count = 2\n", SPLIT_CUDA, axes=axes)
    says = refused(made, tmp_path)
    assert says.startswith("axes[0].values[0]: takes 4 GPUs and split 2 GPUs; ratios of the same")


def layout(folder: Path, text: str) -> Data:
    """A study of vLLM on two GPUs whose last axis has one layout, in a file with ``text``."""
    single = '[[workers]]\nengine = "vllm"\ndevice = "cuda"\ncount = 4\n'
    split = "".join(
        f'[[workers]]\nrole = "{role}"\nengine = "vllm"\ndevice = "cuda"\n'
        "tensor_parallel_size = 2\n"
        'kv_connector = "NixlConnector"\n'
        for role in ("prefill", "decode")
    )
    other = topology(folder, "other.toml", text or split)
    axes = [{"name": "tp_pp_network", "values": [other]}]
    return on_gpus(folder, single, split, axes=axes)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("", "", "changes nothing; an axis varies one thing at a time"),
        ("size = 2\n", "size = 2\nmax_num_seqs = 4\n", "changes max_num_seqs, which this axis"),
        ("size = 2\n", "size = 1\n", "takes 2 GPUs and split 4 GPUs"),
    ],
    ids=["same", "foreign", "smaller"],
)
def test_a_layout_varies_one_thing_of_the_same_hardware(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    layout(tmp_path, "")
    text = (tmp_path / "two.toml").read_text().split("\n", 2)[2]
    made = layout(tmp_path, text.replace(old, new) if old else text)
    assert f"axes[0].values[0]: {says}" in refused(made, tmp_path)


def test_a_layout_with_another_network_is_a_variant(tmp_path: Path) -> None:
    layout(tmp_path, "")
    text = (tmp_path / "two.toml").read_text().split("\n", 2)[2]
    made = layout(tmp_path, text.replace("size = 2\n", 'size = 2\nenv = { UCX_TLS = "tcp" }\n'))
    plan = plan_of(made, tmp_path)
    assert plan.variants["other.toml"].config["decode.env.UCX_TLS"] == "tcp"
