"""Formats in which models write down their thoughts."""
