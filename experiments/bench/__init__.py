"""Benchmarks by name."""
