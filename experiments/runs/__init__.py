"""Trainings as rows: specs, the store, execution, checkpoints, and processes that join."""
