"""A short soak: kills, freezes, restarts and clients that leave, with nothing lost."""

import pytest

from splitserve.bench.soak import soak

SECONDS = 12
SEED = 3
"""Its first disturbances are a freeze and two kills: a rolling restart could outlast the soak."""


@pytest.mark.timeout(120)
async def test_nothing_is_lost_wrong_leaked_or_hung(model: str) -> None:
    reading = await soak(model, SECONDS, 30, SEED, print)
    assert reading.clean, reading
    assert reading.kills > 0
    assert reading.freezes > 0
    assert reading.left > 0
    assert reading.whole + reading.left + reading.refused == reading.requests
