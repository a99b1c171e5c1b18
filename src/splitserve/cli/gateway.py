"""``splitserve gateway``: the HTTP API in front of workers that run already."""

import sys
from typing import Annotated

import typer

from splitserve.cli import options
from splitserve.cli.exposure import warn_if_exposed
from splitserve.launch.checks import check_value, one_of
from splitserve.launch.topology import POLICIES
from splitserve.lifecycle import StatusPipe, end_with_parent, reporting_failure
from splitserve.loading import load
from splitserve.logs import LEVELS, configure
from splitserve.processes.config import GatewayConfig
from splitserve.protocol.address import parse_address
from splitserve.protocol.gate import GateFiles
from splitserve.router.workers.vllm.settings import SCHEME
from splitserve.router.workers.vllm.settings import parse_address as parse_vllm_address


def gateway(
    model: options.Model,
    worker: Annotated[
        list[str],
        typer.Option(
            metavar="ADDRESS",
            help="A worker's address: unix:/path, tcp:host:port or, for a vLLM instance, "
            "vllm+http://host:port?role=decode&connector=NixlConnector. Give one for each worker.",
            show_default=False,
        ),
    ],
    host: options.Host = options.GATEWAY.host,
    port: options.Port = options.GATEWAY.port,
    served_model_name: options.ServedModelName = None,
    max_model_len: options.MaxModelLen = None,
    policy: options.PolicyName = options.GATEWAY.policy,
    request_timeout_s: options.RequestTimeout = options.GATEWAY.request_timeout_s,
    ttft_deadline_s: options.TtftDeadline = options.GATEWAY.ttft_deadline_s,
    max_queued: options.MaxQueued = options.GATEWAY.max_queued,
    tool_call_parser: options.ToolCallParser = options.GATEWAY.tool_call_parser,
    reasoning_parser: options.ReasoningParser = options.GATEWAY.reasoning_parser,
    state_key_file: options.StateKeyFile = None,
    api_key_file: options.ApiKeyFile = None,
    vllm_api_key_file: options.VllmApiKeyFile = None,
    enable_per_request_metrics: options.PerRequestMetrics = False,
    reuse_port: options.ReusePort = False,
    secret_file: options.SecretFile = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    tls_ca: options.TlsCa = None,
    log_level: options.LogLevel = "info",
    status_fd: options.StatusFd = None,
    parent_pid: options.ParentPid = None,
) -> int:
    """Run one gateway: the OpenAI API, placement, and the driving of handoffs.

    It holds no state that cannot be lost: run as many as you like over the same workers. Workers
    may start later; /ready answers 200 once a request would be served. With --api-key-file it asks
    for a key, except on /health, /ready, /version and /metrics.
    """
    status = StatusPipe(status_fd)
    with reporting_failure(status):
        if parent_pid is not None:
            end_with_parent(parent_pid)
        one_of("--log-level", log_level, LEVELS)
        configure("gateway", log_level, sys.stderr)
        config = GatewayConfig(
            model=model,
            workers=tuple(worker),
            host=host,
            port=port,
            served_model_name=served_model_name,
            max_model_len=max_model_len,
            policy=policy,
            request_timeout_s=request_timeout_s,
            ttft_deadline_s=ttft_deadline_s,
            max_queued=max_queued,
            tool_call_parser=tool_call_parser,
            reasoning_parser=reasoning_parser,
            state_key_file=state_key_file,
            api_key_file=api_key_file,
            vllm_api_key_file=vllm_api_key_file,
            enable_per_request_metrics=enable_per_request_metrics,
            reuse_port=reuse_port,
            gate=GateFiles(secret_file, tls_cert, tls_key, tls_ca),
        )
        check_gateway(config)
        warn_if_exposed(host, api_key_file)
        return int(load("splitserve.processes.gateway:run")(config, status))


def check_gateway(config: GatewayConfig) -> None:
    """Raises ConfigError naming the first flag that is wrong by itself."""
    one_of("--policy", config.policy, POLICIES)
    check_value("--port", config.port, 0 <= config.port <= 65535, "must be from 0 to 65535")
    timeout_s = config.request_timeout_s
    check_value("--request-timeout-s", timeout_s, timeout_s > 0, "must be positive")
    length = config.max_model_len
    check_value("--max-model-len", length, length is None or length > 0, "must be positive")
    for address in config.workers:
        if address.startswith(SCHEME):
            parse_vllm_address(address)
        else:
            parse_address(address)
