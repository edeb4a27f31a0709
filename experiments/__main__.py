"""``python -m experiments``."""

import contextlib
import gc
import os
import sys

if __name__ == "__main__":
    try:
        from experiments.cli import main

        status = main()
    except KeyboardInterrupt:  # During imports.
        status = 130
    if status:
        gc.collect()  # Queues of --jobs free their semaphores.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        # Python's teardown would crash a device that still computes, and wait for threads of Orbax
        # whose disks and processes are gone.
        os._exit(status)
