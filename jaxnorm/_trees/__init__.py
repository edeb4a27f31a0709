"""Trees of parameters: paths, nodes, and which axes of which leaf are fan-in."""
