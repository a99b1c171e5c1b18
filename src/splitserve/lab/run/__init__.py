"""The runs of a study: what is written before, during and after each, and what comes out of them.

``study`` goes through a plan in order, ``execute`` does one run, ``journal`` and ``folder`` are
what survives a crash, ``gather`` makes evidence of records on disk. Nothing here compares arms
while a study is under way: whoever looks at differences early stops at the ones that please.
"""
