"""Text work needs no engine, no workers and no tensors."""

import subprocess
import sys

PROBE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy", "transformers", "vllm"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
import splitserve.processes.render
print(*sorted(name for name in sys.modules if name.startswith("splitserve.")))
"""


def test_a_render_process_loads_neither_tensors_nor_router_nor_engine() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert "splitserve.frontend.scale_out.app" in loaded
    for package in ("router", "engine", "transfer", "roles"):
        assert not [name for name in loaded if name.startswith(f"splitserve.{package}")]
