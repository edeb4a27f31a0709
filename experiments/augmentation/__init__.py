"""How training rows are changed, anew in each epoch; `table` has all by name."""
