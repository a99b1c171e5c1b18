"""Records of requests made by hand."""

from splitserve.lab.load.record import Counting, Outcome, RequestRecord


def record(due: float, *tokens: float, error: str = "") -> RequestRecord:
    """Due at ``due``, a token at each time of ``tokens``; with ``error`` it broke off."""
    return RequestRecord(
        request_id="r",
        arm="bench",
        run="1",
        intended_s=due,
        sent_s=due,
        first_byte_s=None,
        events=[(t_s, 1) for t_s in tokens],
        ended_s=tokens[-1] if tokens else due,
        outcome=Outcome.TRUNCATED if error else Outcome.OK,
        counting=Counting.IDS,
        error=error,
    )
