"""What a worker calls a request that its engine will not take."""

from splitserve.errors import CallerError


def refusal_code(error: CallerError) -> str:
    """The code for Failed and Refuse: ``too_long``, ``duplicate`` or ``invalid``."""
    if error.code == "context_length_exceeded":
        return "too_long"
    return "duplicate" if error.code == "duplicate_request" else "invalid"
