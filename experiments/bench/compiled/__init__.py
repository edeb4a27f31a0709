"""What the compilers of TPUs and GPUs make of a step, read off the programs that they print."""
