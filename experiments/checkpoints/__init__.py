"""Checkpoints: a run's state on disk, and how a run resumes from it."""
