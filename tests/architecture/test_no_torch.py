"""Everything but the engine's tensor code imports, and the CLI and gateway run, without torch."""

import json
import pkgutil
import subprocess
import sys

import splitserve

TORCH_MAY_BE_IMPORTED_BY = (
    "splitserve.engine.native",
    "splitserve.engine.kv.pool",
    "splitserve.engine.layers",
    "splitserve.engine.models",
    "splitserve.engine.runner",
    "splitserve.engine.opening",
    *(
        f"splitserve.engine.cuda.{name}"
        for name in (
            "attention",
            "decoder",
            "graphs",
            "kernels",
            "pool",
            "runner",
            "sampler",
            "weights",
        )
    ),
    "splitserve.transfer.cuda",
    "splitserve.bench.device_pool",
)

# Runs in a process of its own, so that nothing is imported already.
PROBE = """
import importlib, json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(f"{name} is blocked")

blocked, names = json.loads(sys.argv[1])
sys.meta_path.insert(0, Blocked())
for name in names:
    importlib.import_module(name)
print(json.dumps(sorted(name for name in sys.modules if "." not in name)))
"""


def imported(names: list[str], *, blocked: list[str]) -> set[str]:
    """Top-level modules that importing ``names`` brings in. Fails if it imports one blocked."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps([blocked, names])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def modules() -> list[str]:
    return [
        module.name
        for module in pkgutil.walk_packages(splitserve.__path__, "splitserve.")
        if not module.name.startswith(TORCH_MAY_BE_IMPORTED_BY)
        and module.name != "splitserve.__main__"
    ]


def test_all_other_modules_import_without_torch() -> None:
    names = modules()
    assert "splitserve.cli.main" in names
    imported(names, blocked=["torch", "transformers", "vllm"])


def test_the_command_line_imports_nothing_heavy() -> None:
    loaded = imported(["splitserve.cli.main"], blocked=["torch", "numpy"])
    assert loaded.isdisjoint({"transformers", "tokenizers", "aiohttp", "starlette", "uvicorn"})


def test_the_gateway_imports_neither_torch_nor_numpy() -> None:
    imported(["splitserve.processes.gateway"], blocked=["torch", "numpy", "transformers"])
