"""What the demo starts ends with it, also where it is killed."""

from __future__ import annotations

from typing import Final

from nls_scheduler.processes import guardian

# Jupyter ends its kernels first. Between the SIGTERM that each gets and the SIGKILL of what is left then.
_GRACE_S: Final = 20.0


def with_us() -> list[str]:
    """Words before a command: its guardian, which passes SIGTERM on, and ends it when this process's thread ends."""
    return [*guardian.beginning(), "--grace", f"{_GRACE_S:g}", "--"]
