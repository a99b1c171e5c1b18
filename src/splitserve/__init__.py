"""Splitserve: serve an LLM in parts that scale apart, and measure whether the split pays.

Read ARCHITECTURE.md for the path of a request through these packages.
"""

__version__ = "0.1.0"
