"""The id by which both legs of one handoff find each other inside vLLM."""

from splitserve.ids import HandoffId


def transfer_id(handoff: HandoffId) -> str:
    """The same for both legs, and new for every attempt: handoffs are."""
    return f"xfer-{handoff}"
