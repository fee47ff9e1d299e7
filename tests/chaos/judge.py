"""Decides for one notebook whether it lost anything that its user was not told of. Shares no code with nls_jupyter.

It knows which cells were completed (their replies reached the user), what each look found in the GPU process, and every
sentence that the user could read. What it holds against them:

- completed cells are in the state, or a sentence names the cell as of which the state is;
- every value is that of the state's cells, and every alias is one;
- every name is there, or a sentence names it; and one that was named comes back with the next process that can have it;
- no cell takes over a minute while a GPU could be had.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from expected_state import IDENTITIES, NAMES, Steps, expected

MOST_S = 60.0
EMPTY: Steps = ()
_LABEL = re.compile(r"\[(\d+)\]")
_AS_OF_NOTHING = re.compile(
    r"without variables|without its variables|none were saved|[Nn]othing was saved|no variables"
)
_AS_OF = re.compile(r"the variables of cell \[\d+\]|none were saved")
_DAMAGED = re.compile(r"saved state(?:'s index)? is damaged|SavedStateDamaged")
_NOT_KEPT = re.compile(r"(?:not kept|not saved|could not be restored[^:]*|did not come back): (.*)")


class Verdict(Enum):
    """How a notebook goes on: as it is, once a name that was named is back, or from the beginning."""

    WHOLE = "whole"
    LACKING = "lacking"
    SPOILT = "spoilt"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not be.

    Attributes:
        kind: in one or two words, for counting.
        sentence: what is wrong.
    """

    kind: str
    sentence: str


@dataclass(slots=True)
class Entry:
    """One cell that changed the state, or may have.

    Attributes:
        number: the cell's in the model.
        label: its number in the notebook.
        begins: it makes everything new.
        certain: its reply reached the user; otherwise it may have run or not.
    """

    number: int
    label: int
    begins: bool = False
    certain: bool = True

    def after(self, steps: Steps) -> Steps:
        """The state after it."""
        return (self.number,) if self.begins else (*steps, self.number)


@dataclass(slots=True)
class Judge:
    """One notebook's, from the start of its kernel on.

    Attributes:
        findings: what was wrong so far.
        rollbacks_said, rollbacks_unsaid: how often the state was older than the last completed cell.
        said_in_log_only: of those that were said, where no cell showed it.
    """

    entries: list[Entry] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    rollbacks_said: int = 0
    rollbacks_unsaid: int = 0
    said_in_log_only: int = 0
    _told: list[str] = field(default_factory=list)
    _named: dict[str, int | None] = field(default_factory=dict)
    _torn: bool = False
    _kernel_cells: int = 0

    # What happened

    def told(self, sentences: list[str]) -> None:
        """The user has read these."""
        self._told += sentences
        # Nothing in the suite writes into saved state.
        for sentence in sentences:
            if _DAMAGED.search(sentence):
                self._found("damaged state", sentence)

    def ran(self, entry: Entry, *, torn: bool = False) -> None:
        """A cell is over. `torn`: it may have been interrupted in the middle of its changes."""
        self.entries.append(entry)
        self._torn = torn

    def emptied(self) -> None:
        """The user asked for a new, empty process, or the kernel is a new one."""
        self.entries.clear()
        self._told.clear()
        self._named.clear()
        self._torn = False

    def new_kernel(self) -> None:
        """The kernel's own variables are gone too."""
        self.emptied()
        self._kernel_cells = 0

    def kernel_counted(self, count: int) -> None:
        """A cell in the kernel added one to the kernel's own counter and showed this."""
        self._kernel_cells += 1
        if count != self._kernel_cells:
            self._found("kernel", f"the kernel's own counter is {count} after {self._kernel_cells} cells")
            self._kernel_cells = count

    def took(self, label: int | None, seconds: float, excused_s: float) -> None:
        """A cell took so long, for some of which no GPU could be had."""
        if seconds - excused_s > MOST_S:
            self._found(
                "slow", f"cell [{label}] took {seconds:.0f} s, of which {excused_s:.0f} s are excused, with a GPU there"
            )

    # What is there

    def unsaid(self, look: dict[str, Any]) -> bool:
        """Whether `saw` would find a rollback, or a name gone, that no sentence names yet: then the log is read."""
        matched = self._matched(tuple(look.get("cells", EMPTY)))
        behind = matched is not None and self._missed(matched) and not self._as_of(matched)
        return bool(behind) or bool(self._gone(look) - self._named_in_told())

    def saw(self, look: dict[str, Any], *, in_log_only: bool = False) -> Verdict:
        """Hold what a cell found against all that is known."""
        if self._torn and look.get("begun") is not None:
            return Verdict.SPOILT
        before = len(self.findings)
        whole = self._names(look)
        if "cells" in look or not look["names"]:
            self._state(look, tuple(look.get("cells", EMPTY)), in_log_only=in_log_only)
        self._told.clear()
        if len(self.findings) > before:
            return Verdict.SPOILT
        return Verdict.WHOLE if whole else Verdict.LACKING

    def _state(self, look: dict[str, Any], steps: Steps, *, in_log_only: bool) -> None:
        matched = self._matched(steps)
        if matched is None:
            self._found("impossible state", f"the state is {steps}, which was never: {self._known()}")
            self.entries = [Entry(number, 0, begins=not place) for place, number in enumerate(steps)]
        else:
            if missed := self._missed(matched):
                self._rolled_back(matched, missed, in_log_only=in_log_only)
            self._resolve(matched, steps)
        self._values(look, steps)

    def _rolled_back(self, matched: int, missed: list[Entry], *, in_log_only: bool) -> None:
        if self._as_of(matched):
            self.rollbacks_said += 1
            self.said_in_log_only += in_log_only
            return
        kind = "rollback misnamed" if any(_AS_OF.search(text) for text in self._told) else "unsaid rollback"
        self.rollbacks_unsaid += 1
        lost = ", ".join(f"[{entry.label}]" for entry in missed)
        as_of = f"[{self.entries[matched - 1].label}]" if matched else "nothing"
        self._found(kind, f"the state is as of {as_of}, without {lost}; what was said: {self._told}")

    def _values(self, look: dict[str, Any], steps: Steps) -> None:
        if not steps:
            return
        for name, value in expected(steps).items():
            if name not in look:
                continue
            if name == "aliases":
                broken = [what for what, holds in zip(IDENTITIES, look[name], strict=True) if not holds]
                if broken:
                    self._found("broken alias", f"{', '.join(broken)} after cells {steps}")
            elif look[name] != value:
                self._found("wrong value", f"{name} is {look[name]!r} instead of {value!r} after cells {steps}")

    def _names(self, look: dict[str, Any]) -> bool:
        """Whether all that should be there is."""
        if not look["names"]:
            return True  # nothing at all is older than the first cell
        gone = NAMES - set(look["names"])
        for name in list(self._named):
            if name not in gone:
                del self._named[name]
        named = self._named_in_told()
        for name in sorted(gone):
            if name in named:
                self._named[name] = look["pid"]
            elif name not in self._named:
                self._found("name vanished", f"{name} is gone, and no sentence names it: {self._told}")
                self._named[name] = None
            elif self._named[name] not in (None, look["pid"]):
                self._found("name dropped", f"{name} was named, and is not back in the next process, nor named again")
                self._named[name] = None
        return not gone

    def _gone(self, look: dict[str, Any]) -> set[str]:
        if not look["names"]:
            return set()
        known = {name for name, pid in self._named.items() if pid in (None, look["pid"])}
        return NAMES - set(look["names"]) - known

    def _named_in_told(self) -> set[str]:
        listed = " ".join(" ".join(_NOT_KEPT.findall(text)) for text in self._told)
        return {name for name in NAMES if re.search(rf"\b{name}\b", listed)}

    # Which moment it is

    def _matched(self, steps: Steps) -> int | None:
        """The most entries of which this can be the state."""
        possible = {EMPTY}
        found = 0 if steps == EMPTY else None
        for count, entry in enumerate(self.entries, 1):
            after = {entry.after(state) for state in possible}
            possible = after if entry.certain else possible | after
            if steps in possible:
                found = count
        return found

    def _missed(self, matched: int) -> list[Entry]:
        return [entry for entry in self.entries[matched:] if entry.certain]

    def _as_of(self, matched: int) -> bool:
        """Whether a sentence names the cell as of which the state is."""
        least = max((entry.label for entry in self.entries[:matched]), default=0)
        most = min(entry.label for entry in self._missed(matched))
        if not matched and any(_AS_OF_NOTHING.search(text) for text in self._told):
            return True
        labels = {int(label) for text in self._told for label in _LABEL.findall(text)}
        return any(least <= label < most for label in labels)

    def _resolve(self, matched: int, steps: Steps) -> None:
        """From now on it is known which of the uncertain cells are in the state."""
        by_number = {entry.number: entry for entry in self.entries[:matched]}
        self.entries = [by_number[number] for number in steps]
        for entry in self.entries:
            entry.certain = True

    def _known(self) -> str:
        return " ".join(f"{'' if e.certain else '?'}{'*' if e.begins else ''}{e.number}" for e in self.entries)

    def _found(self, kind: str, sentence: str) -> None:
        self.findings.append(Finding(kind, sentence))
