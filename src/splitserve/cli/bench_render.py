"""``splitserve bench render``: chats to token ids."""

from splitserve.bench.render import measure_render
from splitserve.cli.readings import print_progress, print_readings
from splitserve.frontend.model import ServedModel
from splitserve.modelstore.resolve import resolve


def run(model: str, words: int, chats: int, rounds: int, as_json: bool) -> int:
    """Chats of ``words`` words, ours and transformers' in turns."""
    folder = resolve(model)
    print_progress(f"rendering {chats} chats of {words} words {rounds} times each way")
    served = ServedModel.load(folder)
    print_readings(measure_render(folder, served, words, chats, rounds), as_json)
    return 0
