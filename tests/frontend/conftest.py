"""Fixtures of the frontend's tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from frontend.live import Live, serving
from frontend.samples import byte_fallback_inner, byte_level_inner, served
from frontend.scripted import ScriptedGenerator
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.model import ServedModel
from splitserve.frontend.tokenizer import Tokenizer

Serve = Callable[..., Live]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer(byte_level_inner(), bos_token="<s>")


@pytest.fixture(scope="session")
def fallback_tokenizer() -> Tokenizer:
    return Tokenizer(byte_fallback_inner())


@pytest.fixture(scope="session")
def model(tokenizer: Tokenizer) -> ServedModel:
    return served(tokenizer)


@pytest.fixture
def serve(model: ServedModel) -> Iterator[Serve]:
    """Starts servers that live as long as the test."""
    with ExitStack() as stack:

        def start(
            generator: ScriptedGenerator,
            *,
            config: FrontendConfig | None = None,
            of: ServedModel = model,
        ) -> Live:
            return stack.enter_context(serving(generator, of, config))

        yield start
