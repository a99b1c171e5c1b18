"""Small measurements a user runs by hand: ``splitserve bench`` and the demo's comparison.

They say what one machine did in one run. Whether to split is the lab's to decide.
"""
