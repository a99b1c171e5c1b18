"""Limits of one frontend."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrontendConfig:
    """``inline_bytes`` is the largest body that is rendered on the event loop: tokenising takes
    about a millisecond a kilobyte, so longer ones go to a thread, of which there are
    ``render_threads``. ``max_choices`` bounds ``n`` times the number of prompts.
    ``enable_per_request_metrics``: an answer of one choice tells where its time went.
    ``session_header``: requests that say the same in it are sent to the same workers where nothing
    speaks against it.
    """

    max_body_bytes: int = 8 * 1024 * 1024
    inline_bytes: int = 2048
    render_threads: int = 2
    max_choices: int = 128
    enable_per_request_metrics: bool = False
    session_header: str = "x-session-id"
