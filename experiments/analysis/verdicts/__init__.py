"""Verdicts on the papers' claims, from committed csv files."""
