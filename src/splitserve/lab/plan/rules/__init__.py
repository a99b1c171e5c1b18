"""What is right in a study. Each rule raises ConfigError with key, cause and cure in one line.

``values`` and ``workload`` look at one value, ``brief`` at how the parts go together. What needs
the topologies that a study names is one level up, in ``fairness``.
"""
