"""``python -m sandbox_exec``, and the ``sandbox-exec`` command."""

import sys


def main() -> int:
    """Run the command line; an interrupt while its modules are being loaded is no traceback."""
    try:
        from sandbox_exec import cli  # noqa: PLC0415  # what may be interrupted
    except KeyboardInterrupt:
        return 130
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
