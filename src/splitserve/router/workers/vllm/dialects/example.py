"""ExampleConnector: a shared folder, addressed by content.

It counts a folder that is still being written as a hit, so decode must wait for the answer.
"""

from collections.abc import Mapping
from typing import Any

from splitserve.router.workers.vllm.dialects.base import Dialect
from splitserve.router.workers.vllm.dialects.unspoken import Unspoken


def dialect(config: Mapping[str, Any]) -> Dialect:
    del config
    return Unspoken("example")
