"""Constrained weight optimization: the items of Ikami et al. 2021."""
