"""Littwin and Wolf 2018: the variance constancy loss."""
