"""Statistics of a study: plain numbers in, estimates with intervals out. No files, no clocks.

The unit is the run, and two runs that saw the same requests are a pair (``paired``). A failed
request is ``math.inf`` everywhere, so that dropping it is never an option.
"""
