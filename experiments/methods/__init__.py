"""Methods: each a row of parts that says how a network is normalized and constrained."""
