"""What one gateway process was asked to be."""

from dataclasses import dataclass, field
from pathlib import Path

from splitserve.protocol.gate import GateFiles


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Field names are those of ``splitserve gateway``'s flags. Times in seconds.

    ``workers`` are addresses (``unix:/path``, ``tcp:host:port`` or ``vllm+http://host:port?...``);
    the gateway learns names and roles from native workers themselves and waits for those that are
    not there yet. ``vllm_api_key_file`` holds the key that vLLM instances ask for. ``port`` 0 takes
    a free one. ``gate`` is how workers behind TCP are reached. ``enable_per_request_metrics``:
    answers tell where their time went.
    """

    model: str
    workers: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    served_model_name: str | None = None
    max_model_len: int | None = None
    policy: str = "least_loaded"
    request_timeout_s: float = 600.0
    ttft_deadline_s: float = 30.0
    max_queued: int = 256
    tool_call_parser: str = "auto"
    reasoning_parser: str = "auto"
    state_key_file: Path | None = None
    api_key_file: Path | None = None
    vllm_api_key_file: Path | None = None
    reuse_port: bool = False
    enable_per_request_metrics: bool = False
    gate: GateFiles = field(default_factory=GateFiles)
