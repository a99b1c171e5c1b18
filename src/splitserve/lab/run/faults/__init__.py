"""Faults brought about under load on a split that the lab started, and what clients saw of them."""
