"""Networks to train: NNX modules that take a style, normalizers and an activation."""
