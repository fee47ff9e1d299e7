"""What a notebook has kept beyond its kernel, as values, and as what its manifests say of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.manifest import MissingName, SavedName

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA: Final = re.compile(r"\d+\.(memory|spill)")
"""Names of files of data."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What lies there of one notebook.

    Attributes:
        notebook: as Jupyter calls it.
        written: when.
        cell: the last one whose variables these are.
        variables: the user's.
        missing: what was not saved then, with reasons.
        made_in: the cell that made a name of `missing`, if that was known.
        size_bytes: of the files.
        versions: of Python and of the packages that matter.
        files: names of the memory file, and of the spill file if there is one.
        content: a digest of all of it.
        interrupted: that cell was interrupted by the end of its kernel.
    """

    notebook: str
    written: str
    cell: str | None
    variables: tuple[SavedName, ...]
    missing: tuple[MissingName, ...]
    made_in: Mapping[str, str]
    size_bytes: int
    versions: Mapping[str, str]
    files: tuple[str, ...]
    content: str
    interrupted: bool = False

    def to_json(self) -> dict[str, Any]:
        """For the manifest; the inverse is `from_json`."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        plain["variables"] = [name.to_json() for name in self.variables]
        plain["missing"] = [{field: getattr(name, field) for field in name.__slots__} for name in self.missing]
        return plain

    @property
    def at(self) -> str:
        """When, as the clocks here show it."""
        return _shown(self.written)

    @property
    def as_of(self) -> str:
        """After which cell, and how that ended."""
        return f"as of cell {self.cell}{' (which the end of its kernel interrupted)' * self.interrupted}"

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Kept:
        """Raises KeyError, TypeError or ValueError for anything else; versions before had no `interrupted`."""
        fields = {name: content[name] for name in cls.__slots__ if name in content or name != "interrupted"}
        fields["interrupted"] = fields.get("interrupted") is True
        fields["variables"] = tuple(SavedName(**name) for name in content["variables"])
        fields["missing"] = tuple(MissingName(**name) for name in content["missing"])
        fields["files"] = tuple(map(_plain_name, content["files"]))
        datetime.fromisoformat(fields["written"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Found:
    """One of what is kept in a folder.

    Attributes:
        earlier: see `KeptFiles.look`.
        damage: why it cannot be brought back, as far as that shows without reading it; `None`: it looks whole.
    """

    kept: Kept
    earlier: bool
    damage: str | None


@dataclass(frozen=True, slots=True)
class Begun:
    """What a kernel began to keep, and had not kept when this was read.

    Attributes:
        written: when it began.
        cell: the last one that had run.
        names: of variables, as far as they were known before.
        goes_on: it still lives, and writes.
    """

    written: str
    cell: str | None
    names: tuple[str, ...]
    goes_on: bool

    @property
    def at(self) -> str:
        """When, as the clocks here show it."""
        return _shown(self.written)


def _plain_name(name: str) -> str:
    if not DATA.fullmatch(name):
        raise ValueError(f"{name!r} is no file of ours")
    return name


def _shown(moment: str) -> str:
    at = datetime.fromisoformat(moment).astimezone()
    return at.strftime("%d %b %H:%M" if at.year == datetime.now(at.tzinfo).year else "%d %b %Y %H:%M")
