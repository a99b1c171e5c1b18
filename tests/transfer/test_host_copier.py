"""Copies in host memory: spans of every size land where they belong, in every layer."""

import ctypes
import random

from hypothesis import given
from hypothesis import strategies as st

from splitserve.protocol.memory import KVLayout
from splitserve.transfer.ends import Ends
from splitserve.transfer.memcpy import HostCopier, HostPool
from splitserve.transfer.plan import Span

LAYOUT = KVLayout("bfloat16", 2, 2, 64, 16, 64, 2)
"""Layers of half a MiB: room for spans on both sides of what counts as large."""

PLACES = st.integers(0, LAYOUT.layer_bytes)


class Memory:
    def __init__(self, data: bytes) -> None:
        self.bytes = bytearray(data)
        self._view = (ctypes.c_char * len(data)).from_buffer(self.bytes)
        self.pool = HostPool(ctypes.addressof(self._view), LAYOUT)


SOURCE = Memory(random.Random(5).randbytes(LAYOUT.pool_bytes))


def span(source: int, target: int, nbytes: int) -> Span:
    room = LAYOUT.layer_bytes - max(source, target)
    return Span(source, target, min(nbytes, room))


@given(st.lists(st.builds(span, PLACES, PLACES, PLACES).filter(lambda s: s.nbytes > 0), max_size=4))
def test_a_layer_is_what_copying_its_spans_in_turn_makes_of_it(spans: list[Span]) -> None:
    large = [one for one in spans if one.nbytes >= 1 << 18]
    ordered = [*large, *(one for one in spans if one not in large)]
    target = Memory(bytes(LAYOUT.pool_bytes))
    ends = Ends()
    copier = HostCopier(ends, spans, SOURCE.pool, target.pool, lambda: True)
    transfer = copier.write(1)
    (event,) = ends.take()
    assert (event.transfer, event.state) == (transfer, "done")
    assert event.nbytes == sum(one.nbytes for one in spans)
    expected = bytearray(LAYOUT.pool_bytes)
    start = LAYOUT.layer_bytes
    for one in ordered:
        there, here = start + one.target, start + one.source
        expected[there : there + one.nbytes] = SOURCE.bytes[here : here + one.nbytes]
    assert target.bytes == expected
