"""What messages on iopub are called."""

from __future__ import annotations

from typing import Any


def topic(kernel: Any, msg_type: str) -> bytes:
    """Of a message on iopub that is no stream's, as ipykernel names it."""
    return f"kernel.{kernel.ident}.{msg_type}".encode()
