"""MoRIIOConnector: which of its two modes a configuration means."""

from collections.abc import Mapping
from typing import Any

from splitserve.router.workers.vllm.dialects.base import Dialect
from splitserve.router.workers.vllm.dialects.moriio_read import MoriioRead
from splitserve.router.workers.vllm.dialects.moriio_write import MoriioWrite


def dialect(config: Mapping[str, Any]) -> Dialect:
    """vLLM takes ``true`` and ``1``, as JSON or as text, for read mode and all else for write."""
    extra = config.get("kv_connector_extra_config") or {}
    read = str(extra.get("read_mode", "false")).lower().strip() in ("true", "1")
    return MoriioRead() if read else MoriioWrite()
