"""Kutsuna 2019: linearly constrained weights."""
