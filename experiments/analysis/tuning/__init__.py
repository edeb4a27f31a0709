"""The choice of settings for each method, on held-out training rows, before a comparison."""
