"""What a study will do, settled before its first request.

Takes STUDY.toml, the topologies and the corpus file that it names. Gives a checked, hashed plan
(``read``, ``resolved``), the ordered list of runs (``phases``), what is fixed between the arms
(``table``, ``config_diff``). Starts nothing and sends nothing.
"""
