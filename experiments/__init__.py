"""The experiments: data, models, methods, training, reports and benchmarks, with a command line.

``python -m experiments --help``. This package imports `jaxnorm`; never the other way round.
"""
