"""Trainings as rows: their specs, the store of finished runs, and their execution."""
