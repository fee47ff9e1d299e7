"""What the demo prints: the acts, the daemon's events as they happen, and what was checked."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping


class Screen:
    """One line per thing that happens, with the seconds since the beginning; JSON lines with `as_json`."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._began = time.monotonic()

    def act(self, title: str) -> None:
        """A new part of the story begins."""
        self._line("act", title, f"\n{title}")

    def check(self, sentence: str) -> None:
        """Something was looked at and is true."""
        self._line("checked", sentence, f"           ✓ {sentence}")

    def note(self, sentence: str) -> None:
        """Something for the reader."""
        self._line("note", sentence, f"           {sentence}")

    def event(self, entry: Mapping[str, Any]) -> None:
        """An entry of the daemon's history."""
        told = f"{entry['name']} {entry['event']}"
        told += f": {entry['reason']}" if entry.get("reason") else ""
        if entry.get("seconds") is not None:
            told += f" ({entry['seconds']:.2f} s"
            told += f", {format_bytes(entry['bytes'])} kept)" if entry.get("bytes") else ")"
        if self._as_json:
            self._print({"type": "event", **entry})
        else:
            print(f"{time.monotonic() - self._began:8.2f} s  {told}", flush=True)  # noqa: T201 - the demo's output

    def _line(self, kind: str, text: str, shown: str) -> None:
        if self._as_json:
            self._print({"type": kind, "text": text})
        else:
            print(shown, flush=True)  # noqa: T201 - the demo's output

    def _print(self, facts: Mapping[str, Any]) -> None:
        seconds = round(time.monotonic() - self._began, 3)
        sys.stdout.write(json.dumps({"seconds": seconds, **facts}) + "\n")
        sys.stdout.flush()
