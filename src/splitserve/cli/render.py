"""``splitserve render``: the text tier as a process of its own."""

import sys
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from splitserve.cli import options
from splitserve.cli.exposure import warn_if_exposed
from splitserve.errors import ConfigError
from splitserve.launch.checks import check_value, one_of
from splitserve.lifecycle import StatusPipe, end_with_parent, reporting_failure
from splitserve.loading import load
from splitserve.logs import LEVELS, configure
from splitserve.processes.render_config import RenderConfig

_DEFAULT: Final = RenderConfig(model="")


AgreeWith = Annotated[
    str | None,
    typer.Option(
        "--agree-with",
        metavar="URL",
        help="Refuse to start unless the gateway or render process there has the same model, "
        "tokenizer, template and parsers.",
        show_default=False,
    ),
]


def render(
    model: options.Model,
    host: options.Host = _DEFAULT.host,
    port: options.Port = _DEFAULT.port,
    served_model_name: options.ServedModelName = None,
    max_model_len: options.MaxModelLen = None,
    tool_call_parser: options.ToolCallParser = _DEFAULT.tool_call_parser,
    reasoning_parser: options.ReasoningParser = _DEFAULT.reasoning_parser,
    state_key_file: options.StateKeyFile = None,
    api_key_file: options.ApiKeyFile = None,
    agree_with: AgreeWith = None,
    log_level: options.LogLevel = "info",
    status_fd: options.StatusFd = None,
    parent_pid: options.ParentPid = None,
) -> int:
    """Run the text work alone: chat templates, tokenising, detokenising, parsing. Needs no GPU.

    Requests become token ids under /v1/chat/completions/render, answers of token ids become OpenAI
    answers under /v1/chat/completions/derender, with the fields of vLLM's services. It keeps no
    state: run as many as you like. With --api-key-file it asks for a key, except on /health,
    /ready, /version and /metrics.
    """
    status = StatusPipe(status_fd)
    with reporting_failure(status):
        if parent_pid is not None:
            end_with_parent(parent_pid)
        one_of("--log-level", log_level, LEVELS)
        configure("render", log_level, sys.stderr)
        config = RenderConfig(
            model=model,
            host=host,
            port=port,
            served_model_name=served_model_name,
            max_model_len=max_model_len,
            tool_call_parser=tool_call_parser,
            reasoning_parser=reasoning_parser,
            state_key_file=state_key_file,
            api_key_file=api_key_file,
            agree_with=agree_with,
        )
        check_render(config)
        warn_if_exposed(host, api_key_file)
        return int(load("splitserve.processes.render:run")(config, status))


def check_render(config: RenderConfig) -> None:
    """Raises ConfigError naming the first flag that is wrong by itself."""
    check_value("--port", config.port, 0 <= config.port <= 65535, "must be from 0 to 65535")
    length = config.max_model_len
    check_value("--max-model-len", length, length is None or length > 0, "must be positive")
    if config.agree_with is not None and not _is_url(config.agree_with):
        raise ConfigError(f"--agree-with: {config.agree_with!r} is no URL; write http://HOST:PORT")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
