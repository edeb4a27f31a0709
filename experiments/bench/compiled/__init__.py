"""Costs of steps on TPUs and GPUs, read off the programs that their compilers print."""
