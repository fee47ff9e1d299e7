"""`nls`, which is also `python -m nls_scheduler`."""

import sys

NO_LINUX = 2
INTERRUPTED = 130


def main() -> int:
    """The entry point. What the command line imports is there on Linux only."""
    if sys.platform != "linux":
        sys.stderr.write(f"nls: it needs Linux, and this is {sys.platform}.\n")
        return NO_LINUX
    try:
        from nls_scheduler.cli import main as on_linux

        return on_linux()
    except KeyboardInterrupt:  # while all of it was imported
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
