"""No connector: decode computes the prompt itself, and a prefill leg would be work for nothing."""

from collections.abc import Mapping
from typing import Any, Final

from splitserve.router.workers.vllm.dialects.base import Dialect
from splitserve.router.workers.vllm.dialects.unspoken import Unspoken

NAME: Final = "plain"
"""The dialect whose prefill leg nobody should ask for."""


def dialect(config: Mapping[str, Any]) -> Dialect:
    del config
    return Unspoken(NAME)
