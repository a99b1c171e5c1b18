"""``splitserve bench handoff``: KV from one process to another."""

from splitserve.bench.handoff_apart import measure_apart
from splitserve.bench.pool import Device, layout_of
from splitserve.cli.readings import print_progress, print_readings
from splitserve.errors import ConfigError
from splitserve.modelstore.resolve import resolve
from splitserve.transfer.registry import choose_connector


def run(model: str, device: str, connector: str, tokens: int, repeats: int, as_json: bool) -> int:
    """The KV of a prompt of ``tokens``, in the model's own layout."""
    kind = _kind(device)
    if connector == "auto":
        connector = choose_connector(kind)
    layout = layout_of(resolve(model), 3 * tokens)
    print_progress(f"moving {tokens} tokens of {model}'s KV {repeats} times, on {kind}")
    print_readings(measure_apart(connector, layout, tokens, repeats, kind), as_json)
    return 0


def _kind(device: str) -> Device:
    match device:
        case "cpu" | "cuda":
            return device
        case _:
            raise ConfigError(f"--device is {device!r}; it must be cpu or cuda")
