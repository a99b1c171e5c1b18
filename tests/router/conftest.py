import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from router_bench import Bench


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: the path of a Unix socket may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ss") as name:
        yield Path(name)


@pytest.fixture
async def bench(folder: Path) -> AsyncIterator[Bench]:
    bench = Bench(folder)
    yield bench
    await bench.close()
