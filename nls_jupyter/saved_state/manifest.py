"""What a saved state says about itself; the kernel reads this and never unpickles anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from nls_jupyter.between.seam import MissingSeamError
from nls_jupyter.saved_state.kinds import is_of, module_of, name_of, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

Where = Literal["host", "gpu"]

# So many names are told apart without looking at their letters again: IPython adds some with each cell.
_NAMES_KNOWN = 1 << 14
# IPython's own names: they are there again in any new process.
_IPYTHONS = re.compile(
    r"In|Out|exit|quit|get_ipython|_+|_i+|_i?\d+|_[oid]h|_exit_code|"
    r"__(name|doc|package|loader|spec|builtins?|file|cached|warningregistry|session|IPYTHON)__"
)
# What IPython binds `__doc__` to; a cell may bind it anew, as one does that begins with a text.
_IPYTHONS_DOC = "Automatically created module for IPython interactive environment"


@dataclass(frozen=True, slots=True)
class SavedName:
    """A name that was saved.

    Attributes:
        name: in the user's namespace.
        type_name: for people: `ndarray`, `torch.Tensor`, `Net`.
        memory_bytes: what it adds to the saved state; what several names share counts at the first of them.
        where: `gpu` when the value, or something new in it, lives in Gpu memory.
        not_back: why the process that holds the other names could not bring this one back; `None`: it is there.
    """

    name: str
    type_name: str
    memory_bytes: int
    where: Where
    not_back: str | None = None

    def to_json(self) -> dict[str, Any]:
        """A plain dict; the inverse is the constructor."""
        return _as_dict(self)


@dataclass(frozen=True, slots=True)
class MissingName:
    """A name that is not in the saved state, or could not be brought back, and why.

    Attributes:
        name: in the user's namespace, or a setting.
        type_name: for people.
        reason: one clause.
        lacks_memory: it would come back where more Gpu memory is free.
        no_room: it would be saved where more memory, or disk, is left.
    """

    name: str
    type_name: str
    reason: str
    lacks_memory: bool = False
    no_room: bool = False


@dataclass(frozen=True, slots=True)
class ChangedName:
    """A name that comes back otherwise than it was, and how."""

    name: str
    type_name: str
    change: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of one saved state.

    Attributes:
        memory_bytes: all that a restore will need; memory never written to on a simulated Gpu counts too.
        saved: what was saved, in the order of the stream.
        missing: what was not, with reasons.
        cell: the cell after which it was saved, as the caller named it.
        changed: names among `saved` that come back otherwise than they were.
        carried: what earlier processes saved and nobody could bring back yet.
        left: how many of `saved` nobody looked at, as nothing that ran could touch them.
        recomputed: what is computed again instead: names and expressions.
    """

    memory_bytes: int
    saved: tuple[SavedName, ...]
    missing: tuple[MissingName, ...]
    cell: str | None
    changed: tuple[ChangedName, ...] = ()
    carried: tuple[SavedName, ...] = ()
    left: int = 0
    recomputed: tuple[tuple[str, str], ...] = ()

    @property
    def gpu_bytes(self) -> int:
        """What a restore will need on the Gpu, without the CUDA context."""
        return sum(name.memory_bytes for name in (*self.saved, *self.carried) if name.where == "gpu")

    @property
    def without_room(self) -> tuple[MissingName, ...]:
        """Of `missing` those that only lack room: they need not be lost as long as their process lives."""
        return tuple(name for name in self.missing if name.no_room)

    @property
    def variables(self) -> tuple[SavedName, ...]:
        """Of `saved` what the user named; the rest comes back beside them."""
        return tuple(name for name in self.saved if not is_beside(name.name))

    def to_json(self) -> dict[str, Any]:
        """Plain dicts and lists, for messages."""
        return {
            "memory_bytes": self.memory_bytes,
            "saved": [_as_dict(name) for name in self.saved],
            "missing": [_as_dict(name) for name in self.missing],
            "cell": self.cell,
            "changed": [_as_dict(name) for name in self.changed],
            "carried": [_as_dict(name) for name in self.carried],
            "left": self.left,
            "recomputed": [list(recipe) for recipe in self.recomputed],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Manifest:
        """The inverse of `to_json`. Raises KeyError or TypeError for anything else."""
        return cls(
            memory_bytes=content["memory_bytes"],
            saved=tuple(SavedName(**name) for name in content["saved"]),
            missing=tuple(MissingName(**name) for name in content["missing"]),
            cell=content["cell"],
            changed=tuple(ChangedName(**name) for name in content["changed"]),
            carried=tuple(SavedName(**name) for name in content["carried"]),
            left=content.get("left", 0),
            recomputed=tuple((name, expression) for name, expression in content.get("recomputed", ())),
        )


def is_beside(name: str) -> bool:
    """Whether it is saved beside the user's names: IPython's results (`Out[3]`, `_`), what modules hold (`m:path`)."""
    return ":" in name or is_result(name)


def is_result(name: str) -> bool:
    """Whether it is one of IPython's results."""
    return name.startswith("Out[") or not name.strip("_")


def _as_dict(record: SavedName | MissingName | ChangedName) -> dict[str, Any]:
    """`dataclasses.asdict` copies deeply, which takes longer than a save of these names."""
    return {field: getattr(record, field) for field in record.__slots__}


def is_ipythons(name: str) -> bool:
    """Whether IPython binds it in every session: its results, its cells and what ends it."""
    # A class of the user's may have a hash of its own.
    return _known_as_ipythons(name) if type(name) is str else _IPYTHONS.fullmatch(name) is not None


@lru_cache(maxsize=_NAMES_KNOWN)
def _known_as_ipythons(name: str) -> bool:
    return _IPYTHONS.fullmatch(name) is not None


def user_names(user_ns: Mapping[str, Any], user_ns_hidden: Mapping[str, Any]) -> dict[str, Any]:
    """The names that are the user's: none of IPython's; those with one leading underscore are."""
    return {
        name: value
        for name, value in dict(user_ns).items()  # a thread of the user's may bind another one meanwhile
        if issubclass(type(name), str)
        and (not is_ipythons(name) or _is_the_users_doc(name, value))
        and not (name in user_ns_hidden and user_ns_hidden[name] is value)
    }


def _is_the_users_doc(name: str, value: Any) -> bool:
    return name == "__doc__" and type(value) is str and value != _IPYTHONS_DOC


def type_name(value: object) -> str:
    """A type's name as people know it: with the library's name, without its inner modules."""
    kind = type(value)
    package = module_of(kind).partition(".")[0]
    package = "xp" if package == "nls_jupyter" else package
    name = name_of(kind)
    return name if package in {"", "builtins", "types"} or package.startswith("_") else f"{package}.{name}"


class NotKeptError(NotImplementedError):
    """What nobody can keep; its text is a clause for the user."""


def describe(error: BaseException) -> str:
    """An error as a reason: its type and the beginning of its text, on one line; ours is a clause by itself."""
    text = " ".join(text_of(error).split())[:300]
    if is_of(error, MissingSeamError) or is_of(error, NotKeptError):
        return text
    name = name_of(type(error)).rpartition(".")[2]
    return f"{name}: {text}" if text else name
