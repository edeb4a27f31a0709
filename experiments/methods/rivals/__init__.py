"""Baselines: other authors' methods, each a file here and a row of the table."""
