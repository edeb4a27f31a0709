"""Datasets: two splits of standardized float32 arrays, from a name, a file, or a folder."""
