"""Every way to be wrong on the command line: one line that helps, and a code that says whose."""

from pathlib import Path

import pytest

from flow.tiny_model import make_model_folder
from splitserve.cli.errors import exit_code_of
from splitserve.cli.main import main
from splitserve.errors import BugError, ConfigError, SplitserveError, UnavailableError
from splitserve.lifecycle import StartFailed

from .commands import splitserve

WORKER = ("worker", "m", "--role", "prefill", "--name", "n", "--listen", "unix:/tmp/x")
GATEWAY = ("gateway", "m", "--worker", "unix:/tmp/x")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (UnavailableError("x"), 3),
        (StartFailed("n", "r", "l", []), 4),
        (BugError("x"), 1),
    ],
)
def test_each_kind_of_error_has_its_code(error: SplitserveError, code: int) -> None:
    assert exit_code_of(error) == code


@pytest.fixture
def our_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that runs in this process leaves its log alone."""
    for verb in ("worker", "gateway"):
        monkeypatch.setattr(f"splitserve.cli.{verb}.configure", lambda *_: None)


@pytest.mark.usefixtures("our_log")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "No such command 'nothing'"),
        (("serve",), "Missing argument 'MODEL'"),
        (("serve", "m", "--nothing"), "No such option: --nothing"),
        (("serve", "m", "--port"), "--port"),
        (("serve", "m", "--port", "--host", "h"), "Invalid value for '--port'"),
        (("serve", "m", "--port", "70000"), "gateway.port must be 0 to 65535 (got 70000)"),
        (("serve", "m", "--prefill", "1"), "--prefill and --decode go together"),
        (("serve", "m", "--decode", "1"), "--prefill and --decode go together"),
        (("serve", "m", "--prefill", "0", "--decode", "1"), "--prefill must be at least 1 (got 0)"),
        (("serve", "m", "--colocated", "0"), "--colocated must be at least 1 (got 0)"),
        (
            ("serve", "m", "--prefill", "1", "--decode", "1", "--colocated", "1"),
            "either --prefill and --decode, or --colocated",
        ),
        (("serve", "m", "--kv-cache-memory-bytes", "1x"), "--kv-cache-memory-bytes: '1x' is not"),
        (("serve", "m", "--engine", "natve"), "did you mean 'native'?"),
        (("serve", "m", "--engine", "vllm", "--connector", "shm"), "vLLM's key is kv_connector"),
        ((*GATEWAY, "--worker", "vllm+ftp://a"), "is not of the form vllm+http://host:port"),
        ((*GATEWAY, "--worker", "vllm+http://a?role=x"), "role 'x' is none of colocated, prefill"),
        (("serve", "/nonexistent/model"), "no model '/nonexistent/model'"),
        (("up",), "Missing argument 'TOPOLOGY.toml'"),
        (("up", "/nonexistent.toml"), "/nonexistent.toml: No such file or directory"),
        (("worker", "m"), "Missing option '--role'"),
        ((*WORKER, "--role", "prefil"), "--role must be one of colocated, prefill, decode"),
        ((*WORKER, "--listen", "/tmp/x"), "neither unix:/path nor tcp:host:port"),
        ((*WORKER, "--listen", "tcp:0.0.0.0:7"), "peers are told this address"),
        ((*WORKER, "--listen", "tcp:[::]:7"), "peers are told this address"),
        ((*WORKER, "--cores", "0,n1"), "--cores: 'n1' is not a core number"),
        ((*WORKER, "--cores", "0,"), "--cores: '' is not a core number"),
        ((*WORKER, "--cores", "0,0"), "--cores: '0,0' names a core twice"),
        ((*WORKER, "--cores", "90000"), "cores: [90000] are not among"),
        ((*WORKER, "--max-num-seqs", "0"), "--max-num-seqs must be positive (got 0)"),
        (
            (*WORKER, "--tensor-parallel-size", "0"),
            "--tensor-parallel-size must be positive (got 0)",
        ),
        (
            (*WORKER, "--device", "cuda:0", "--tensor-parallel-size", "2"),
            '--tensor-parallel-size splits native workers on the CPU only; engine = "vllm" spreads',
        ),
        (
            ("serve", "m", "--device", "cuda", "--tensor-parallel-size", "2"),
            "workers[0].tensor_parallel_size splits native workers on the CPU only",
        ),
        ((*WORKER, "--fake-num-kv-heads", "0"), "--fake-num-kv-heads must be positive (got 0)"),
        ((*WORKER, "--device", "tpu"), "device 'tpu' is unknown; write cpu, cuda or cuda:N"),
        ((*WORKER, "--device", "cuda:0", "--engine", "fake"), "--device 'cuda': the fake engine"),
        (
            (*WORKER, "--device", "cuda:1", "--connector", "shm"),
            "--connector 'shm' does not reach memory of device 'cuda'; use 'cuda_ipc'",
        ),
        (
            (*WORKER, "--gpu-memory-utilization", "1.5"),
            "--gpu-memory-utilization must be above 0 and at most 1 (got 1.5)",
        ),
        (("serve", "m", "--device", "cuda:0"), "workers[0].device must be one of cpu, cuda"),
        (
            ("serve", "m", "--connector", "cuda_ipc"),
            "workers[0].connector 'cuda_ipc' does not reach memory of device 'cpu'",
        ),
        (("serve", "m", "--kv-tier-memory-bytes", "1x"), "--kv-tier-memory-bytes: '1x' is not a"),
        (
            ("serve", "m", "--kv-tier-disk-path", "/kv"),
            "workers[0].kv_tier_disk_bytes must be positive beside workers[0].kv_tier_disk_path",
        ),
        (
            ("serve", "m", "--engine", "vllm", "--kv-tier-memory-bytes", "1GiB"),
            "workers[0].kv_tier_memory_bytes is read by native workers",
        ),
        ((*WORKER, "--kv-tier-disk-bytes", "1x"), "--kv-tier-disk-bytes: '1x' is not a size"),
        (
            (*WORKER, "--kv-tier-disk-bytes", "1KiB"),
            "--kv-tier-disk-bytes has no folder: add --kv-tier-disk-path (got 1024)",
        ),
        (
            (*WORKER, "--no-enable-prefix-caching", "--kv-tier-memory-bytes", "1GiB"),
            "--enable-prefix-caching must be on where there is a KV tier",
        ),
        (("bench", "serve", "m", "--case", "512x1"), "'512x1' is not a case; write 512/128x32"),
        (("bench", "serve", "m", "--shape", "2p"), "--shape '2p' is none; write colocated"),
        (("bench", "engine", "m", "--device", "tpu"), "device 'tpu' is unknown"),
        ((*WORKER, "--fake-step-ms", "-1"), "--fake-step-ms must not be negative"),
        ((*WORKER, "--log-level", "loud"), "--log-level must be one of debug, info"),
        ((*WORKER, "--status-fd", "999"), "status-fd: 999 is not an open file descriptor"),
        (("gateway", "m"), "Missing option '--worker'"),
        ((*GATEWAY, "--worker", "tcp:h"), "address 'tcp:h' is neither"),
        ((*GATEWAY, "--policy", "random"), "--policy must be one of cost, least_loaded"),
        ((*GATEWAY, "--port", "-1"), "--port must be from 0 to 65535 (got -1)"),
        ((*GATEWAY, "--request-timeout-s", "nan"), "--request-timeout-s must be positive"),
        (("bench", "nothing"), "No such command 'nothing'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_setting_is_one_line_and_code_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(arguments)
    told = capsys.readouterr()
    assert code == 2, told.err
    assert told.out == ""
    (line,) = told.err.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_wrong_topology_names_file_and_key(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text('[model]\nname = "m"\n[[workers]]\nrole = "decod"\n')
    done = splitserve("up", path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {path}: workers[0].role must be one of")


def test_a_parent_that_is_gone_is_code_3() -> None:
    done = splitserve(*WORKER, "--parent-pid", "1073741824")
    assert done.returncode == 3
    assert done.stderr == "error: the process that started this one (1073741824) is gone\n"


def test_without_vllm_the_cure_is_said_before_a_model_is_fetched() -> None:
    answer = splitserve("serve", "smollm2", "--engine", "vllm", PATH="/nonexistent")
    assert answer.returncode == 2
    assert "there is no program 'vllm'; install vLLM (pip install vllm)" in answer.stderr


def test_a_key_for_vllm_that_others_can_read_is_refused(tmp_path: Path) -> None:
    model, key = make_model_folder(tmp_path / "tiny"), tmp_path / "key"
    key.write_text("k")
    key.chmod(0o644)
    worker = ("--worker", "vllm+http://127.0.0.1:9")
    answer = splitserve("gateway", model, *worker, "--vllm-api-key-file", key)
    assert answer.returncode == 2
    assert "--vllm-api-key-file" in answer.stderr
    assert "is open to others" in answer.stderr
