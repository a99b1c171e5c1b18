"""What one render process was asked to be."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RenderConfig:
    """Field names are those of ``splitserve render``'s flags. ``port`` 0 takes a free one.

    ``agree_with`` is the URL of a gateway or another render process that must have the same
    settings. Parsers are named as in vLLM; ``auto`` takes what the chat template asks for.
    """

    model: str
    host: str = "127.0.0.1"
    port: int = 8001
    served_model_name: str | None = None
    max_model_len: int | None = None
    tool_call_parser: str = "auto"
    reasoning_parser: str = "auto"
    state_key_file: Path | None = None
    api_key_file: Path | None = None
    agree_with: str | None = None
