"""Abstract interpreter of models: layouts, layers and the rows of the inputs, from the jaxpr."""
