"""Training: one pure step, the ways to run an epoch of them, and the loop over epochs."""
