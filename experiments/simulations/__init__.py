"""Simulations of the papers' theory: pure JAX, compiled, over seeds at once."""
