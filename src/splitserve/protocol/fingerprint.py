"""What must agree before two processes work on one request."""

from collections.abc import Mapping


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """One line per key that both have with different values, for people to read."""
    return [
        f"{key}: {ours[key]!r} here, {theirs[key]!r} at the peer"
        for key in sorted(ours.keys() & theirs.keys())
        if ours[key] != theirs[key]
    ]
