"""Tensor work that models are made of. Knows no model and no request."""
