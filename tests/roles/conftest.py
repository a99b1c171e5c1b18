import pytest


@pytest.fixture(params=[1, 2])
def depth(request: pytest.FixtureRequest) -> int:
    """How many launches the workers' engines keep open."""
    assert isinstance(request.param, int)
    return request.param
