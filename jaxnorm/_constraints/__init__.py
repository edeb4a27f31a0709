"""The constraint set {1'w = 0, ||w||^2 = c}: of an array, of a tree, and how far off one is."""
