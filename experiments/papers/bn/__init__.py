"""Luo et al. 2019: regularization in batch normalization."""
