"""What one request's record says of its latency, and what a set of them says of an SLO.

Pure: takes ``RequestRecord`` values, gives floats for the statistics. A failure is ``math.inf``, so
that no quantile can gain by it; None means that the measure does not exist for the request.
"""
