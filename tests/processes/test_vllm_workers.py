"""What a gateway makes of vLLM's addresses and of its key."""

from pathlib import Path
from urllib.parse import urlencode

import pytest

from splitserve.errors import ConfigError
from splitserve.processes.vllm_workers import vllm_api_key, vllm_workers

PLAIN = "vllm+http://a:1?name=p&role=prefill&connector=ExampleConnector&kv_role=kv_both&tp_size=2"


def test_settings_of_the_connector_are_read_and_the_key_is_theirs() -> None:
    extra = urlencode({"kv_connector_extra_config": '{"shared_storage_path": "/kv"}'})
    workers = vllm_workers(["unix:/x", PLAIN, f"{PLAIN}&{extra}"], "sesame")
    assert list(workers) == [PLAIN, f"{PLAIN}&{extra}"]
    plain, full = workers.values()
    assert plain.kv_transfer_config == {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}
    assert full.kv_transfer_config == {
        **plain.kv_transfer_config,
        "kv_connector_extra_config": {"shared_storage_path": "/kv"},
    }
    assert full.facts == plain.facts == {"tp_size": 2}
    assert [worker.api_key for worker in workers.values()] == ["sesame"] * 2


def test_settings_that_are_no_json_are_refused() -> None:
    with pytest.raises(ConfigError, match="kv_connector_extra_config is no JSON"):
        vllm_workers([f"{PLAIN}&kv_connector_extra_config=x"], "")


def test_the_key_comes_from_the_file_or_from_vllms_own_variable(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("filed\n")
    key.chmod(0o600)
    assert vllm_api_key(None, {}) == ""
    assert vllm_api_key(None, {"VLLM_API_KEY": "spoken"}) == "spoken"
    assert vllm_api_key(key, {"VLLM_API_KEY": "spoken"}) == "filed"
