"""The text tier of a process, made from a model folder."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.fingerprint import text_fingerprint
from splitserve.frontend.model import ServedModel
from splitserve.frontend.scale_out.stream_state import StateSeal, state_key
from splitserve.frontend.scale_out.tier import TextTier
from splitserve.modelstore.folder import ModelFolder

log: Final = logging.getLogger(__name__)


def new_tier(
    folder: ModelFolder, model: ServedModel, config: FrontendConfig, state_key_file: Path | None
) -> TextTier:
    """Raises ConfigError when the key for states cannot be had."""
    fingerprint = text_fingerprint(folder, model)
    for part, value in fingerprint.items():
        log.info("%s: %s", part, value)
    return TextTier(
        model=model,
        config=config,
        fingerprint=fingerprint,
        end_ids=frozenset(folder.eos_token_ids()),
        seal=StateSeal(state_key(state_key_file, os.environ), fingerprint),
        threads=ThreadPoolExecutor(config.render_threads, thread_name_prefix="text"),
    )
