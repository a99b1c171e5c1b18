"""From estimates to a verdict: clauses, readings and the decision, each a table. Pure.

Receives what the runs of a study gave (``evidence.Evidence``); gives a ``outcome.Verdict`` with the
evidence of every clause. No file, no clock, no score: the five quantities stay apart.
"""
