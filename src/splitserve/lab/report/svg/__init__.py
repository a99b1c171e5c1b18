"""Plots as SVG text, from plain numbers; no browser, network or script is needed to see them.

Every plot takes any sample, also an empty or an infinite one. Series differ by dash, marker and
label as well as by shade, so that print and eyes that see no colour lose nothing.
"""
