"""``python -m experiments``."""

import os
import sys
import threading

if __name__ == "__main__":
    try:
        from experiments.cli import main

        status = main()
        if status:
            # Threads of Orbax and JAX may wait for disks and processes that are gone.
            end = threading.Timer(2.0, os._exit, [status])
            end.daemon = True
            end.start()
        sys.exit(status)
    except KeyboardInterrupt:  # During imports.
        sys.exit(130)
