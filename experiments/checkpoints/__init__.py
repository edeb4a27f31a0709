"""Checkpoints: a run's state on disk, whole or not there, and the way back from it."""
