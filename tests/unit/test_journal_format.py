"""A journal's version says what stands in it: an older daemon knows a newer one's, and does not call it damaged."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from nls_scheduler.core.model import codec
from nls_scheduler.daemon import journal_tables
from nls_scheduler.views.entries import Entry

FORMAT = Path(__file__).with_name("journal_format.json")
CHANGED = (
    "what a journal holds has changed: raise VERSION in daemon/journal_tables.py, say there what is new, and run "
    "`PYTHONPATH=tests:node_scheduler:. python -m unit.test_journal_format`"
)


def parts_of(kind: type) -> list[str]:
    """What is written of a value: its fields with their types, or the members of an enumeration."""
    if is_dataclass(kind):
        return [f"{field.name}: {field.type}" for field in fields(kind) if field.compare]
    return [member.value for member in kind]  # type: ignore[attr-defined]


def today() -> dict[str, Any]:
    tables = [line.strip() for line in journal_tables._SCHEMA.splitlines() if line.strip()]
    types = {kind.__name__: parts_of(kind) for kind in (*codec._KINDS.values(), Entry)}
    return {"version": journal_tables.VERSION, "tables": tables, "types": dict(sorted(types.items()))}


def followed(kept: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """What is kept from `now` on. Raises ValueError where one version would mean two things."""
    if now != kept and now["version"] <= kept["version"]:
        raise ValueError(CHANGED)
    return now


def test_what_a_journal_holds_changes_with_its_version_only() -> None:
    assert json.loads(FORMAT.read_text(encoding="utf-8")) == today(), CHANGED


def test_another_format_of_the_same_version_is_not_taken_for_it() -> None:
    now = today()
    more = {**now, "types": {**now["types"], "Gpu": [*now["types"]["Gpu"], "colour: str"]}}
    assert followed(now, now) == now
    with pytest.raises(ValueError, match="raise VERSION"):
        followed(now, more)
    newer = {**more, "version": now["version"] + 1}
    assert followed(now, newer) == newer


if __name__ == "__main__":
    kept = json.loads(FORMAT.read_text(encoding="utf-8")) if FORMAT.exists() else {"version": 0}
    FORMAT.write_text(json.dumps(followed(kept, today()), indent=1) + "\n", encoding="utf-8")
