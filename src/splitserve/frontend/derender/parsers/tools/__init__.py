"""Formats in which models call tools."""
