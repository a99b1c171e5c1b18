"""``splitserve bench derender``: token ids to text and structure, along a long answer."""

from collections.abc import Sequence

from splitserve.bench.derender import measure_derender
from splitserve.bench.derender_service import measure_services
from splitserve.cli.readings import print_progress, print_readings
from splitserve.frontend.model import ServedModel
from splitserve.modelstore.resolve import resolve


def run(
    model: str, urls: Sequence[str], tokens: int, repeats: int, chunk: int, as_json: bool
) -> int:
    """In this process; with ``urls`` at these services instead, one call a chunk."""
    served = ServedModel.load(resolve(model))
    if urls:
        print_progress(f"derendering {tokens} tokens at each service, {chunk} a call")
        print_readings(measure_services(urls, served, tokens, chunk), as_json)
    else:
        print_progress(f"derendering {tokens} tokens {repeats + 1} times each way")
        print_readings(measure_derender(served, tokens, repeats), as_json)
    return 0
