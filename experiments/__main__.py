"""``python -m experiments``."""

import sys

if __name__ == "__main__":
    try:
        from experiments.cli import main

        sys.exit(main())
    except KeyboardInterrupt:  # During imports.
        sys.exit(130)
