"""Which word a refusal by the engine gets."""

import pytest

from splitserve.errors import CallerError
from splitserve.roles.refusal import refusal_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CallerError("long", code="context_length_exceeded"), "too_long"),
        (CallerError("again", status=409, code="duplicate_request"), "duplicate"),
        (CallerError("bad grammar", param="structured_outputs"), "invalid"),
    ],
)
def test_the_code_says_what_is_wrong(error: CallerError, code: str) -> None:
    assert refusal_code(error) == code
