"""An answer that is one of several texts."""

import json
from collections.abc import Sequence

from splitserve.errors import CallerError
from splitserve.structured.limits import Limits, check_text


def choice_rules(choices: Sequence[str], limits: Limits) -> str:
    """Raises CallerError for none, too many or too long ones."""
    if not choices:
        raise CallerError("must hold at least one text")
    if len(choices) > limits.max_choices:
        raise CallerError(f"holds {len(choices)} texts; at most {limits.max_choices} are allowed")
    check_text("".join(choices), limits.max_bytes // 2)
    # One token of the grammar, not one rule for each: the lexer takes many alternatives easily.
    return "start: CHOICE\nCHOICE: " + " | ".join(json.dumps(choice) for choice in choices)
