"""Simulations of what the papers' theory predicts: pure JAX, compiled, over seeds at once."""
