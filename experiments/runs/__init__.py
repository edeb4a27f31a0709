"""Trainings as rows: what each is, where finished ones are kept, how many are done at once."""
