"""Training: one pure step, the runners of an epoch, and the loop over epochs."""
