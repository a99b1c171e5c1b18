"""``splitserve bench handoff``: KV from one process to another."""

from splitserve.bench.handoff import measure_handoff
from splitserve.bench.pool import layout_of
from splitserve.cli.readings import print_progress, print_readings
from splitserve.modelstore.resolve import resolve


def run(model: str, connector: str, tokens: int, repeats: int, as_json: bool) -> int:
    """The KV of a prompt of ``tokens``, in the model's own layout."""
    layout = layout_of(resolve(model), 3 * tokens)
    print_progress(f"moving {tokens} tokens of {model}'s KV {repeats} times")
    print_readings(measure_handoff(connector, layout, tokens, repeats), as_json)
    return 0
