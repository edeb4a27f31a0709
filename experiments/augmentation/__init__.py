"""Augmentation of training rows, drawn anew in each epoch; `table` lists all by name."""
