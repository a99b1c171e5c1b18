"""Fixtures of the text tier's tests."""

from collections.abc import Iterator

import pytest

from frontend.scale_out.rig import Caller, app_of, parsing_model, plain_model, text_tier


@pytest.fixture
def plain() -> Iterator[Caller]:
    """A model whose answers are text."""
    with text_tier(plain_model()) as tier:
        yield Caller(app_of(tier))


@pytest.fixture
def parsing() -> Iterator[Caller]:
    """A model whose answers are thoughts, text and calls."""
    with text_tier(parsing_model()) as tier:
        yield Caller(app_of(tier))
