"""A run's load from several processes, where one would be late.

The parent (``crew``) splits the schedule, starts the processes (``process``) and gives their
records as one; ``work`` is what passes between them. All are of one host: they share its monotonic
clock.
"""
