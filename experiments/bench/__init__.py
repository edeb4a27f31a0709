"""Benchmarks by name."""

from experiments.bench._registry import BENCHMARKS as BENCHMARKS
from experiments.bench._registry import find_benchmark as find_benchmark
from experiments.bench._step import StepCost as StepCost
from experiments.bench._step import measure_steps as measure_steps
from experiments.bench._step import random_batch as random_batch
