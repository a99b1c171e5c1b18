"""What flow tests of connectors share."""

import pytest

from connectors.usable import CONNECTORS, need, over


@pytest.fixture(scope="module", params=map(over, CONNECTORS))
def connector(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    need(name)
    return name
