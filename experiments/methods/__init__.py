"""Methods: lists of parts that normalize and constrain a network."""
