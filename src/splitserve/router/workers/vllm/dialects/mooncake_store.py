"""MooncakeStoreConnector: a shared store, addressed by content."""

from collections.abc import Mapping
from typing import Any

from splitserve.router.workers.vllm.dialects.base import Dialect
from splitserve.router.workers.vllm.dialects.unspoken import Unspoken


def dialect(config: Mapping[str, Any]) -> Dialect:
    del config
    return Unspoken("mooncake_store")
