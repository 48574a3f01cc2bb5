"""``python -m sandbox_exec`` is the ``sandbox-exec`` command."""

import sys

from sandbox_exec.cli import main

if __name__ == "__main__":
    sys.exit(main())
