"""Decoders: their configuration, their weights, their forward pass over one step's batch."""
