"""Which workers may work together: their fingerprints, compared. Pure."""

from collections.abc import Iterable, Mapping


def disagreements(
    expected: Mapping[str, str], workers: Iterable[tuple[str, Mapping[str, str]]]
) -> dict[str, str]:
    """By worker name, why it must not be used; workers that agree are left out.

    ``expected`` are the gateway's own values. ``workers`` come in order of precedence: each has to
    agree, in every key that both have, with ``expected`` and with all accepted before it.
    """
    reference = {key: (value, "this gateway") for key, value in expected.items()}
    problems: dict[str, str] = {}
    for name, fingerprint in workers:
        problem = _first_difference(reference, fingerprint)
        if problem is not None:
            problems[name] = problem
            continue
        for key, value in fingerprint.items():
            reference.setdefault(key, (value, name))
    return problems


def _first_difference(
    reference: Mapping[str, tuple[str, str]], fingerprint: Mapping[str, str]
) -> str | None:
    for key in sorted(reference.keys() & fingerprint.keys()):
        value, owner = reference[key]
        if fingerprint[key] != value:
            return f"fingerprint differs: {key} is {fingerprint[key]!r}, {value!r} at {owner}"
    return None
