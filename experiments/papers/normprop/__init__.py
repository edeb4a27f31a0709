"""Arpit et al. 2016: normalization propagation."""
