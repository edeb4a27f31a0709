"""The experiments: data, models, methods, training, reports and benchmarks, with a command line.

Run ``python -m experiments --help``. This package imports `jaxnorm`, which never imports it.
"""
