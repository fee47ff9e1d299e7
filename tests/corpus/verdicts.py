"""Decides of each cell whether it showed what plain runs show, and if not, whether the user was told why.

Shares no code with nls_jupyter: it knows the cells' sources, what plain kernels showed, what this run showed, and the
sentences that its user could read.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from IPython.core.inputtransformer2 import TransformerManager

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from outputs import Shown

_LIST = re.compile(r"(?:not kept|not saved|could not be restored[^:]*|did not come back|changed): (.*)")
# Those of which one clause holds, before it.
_LISTED = re.compile(r"(?:^|\), |: )([^():]+?) \(")
_RESULT = re.compile(r"Out\[(\d+)\]")
_FROM_TO = re.compile(r"\d+ cells from \[(\d+)\] to \[(\d+)\] ran")
_SOME = re.compile(r"cells? ((?:\[\d+\](?:, | and )?)+) ran")
_DIED = ("GpuProcessDied", "GpuEvicted", "GpuReclaimed")
# What shows that cells which ran again have other numbers.
_OF_NUMBERS = {"In", "Out", "dir", "globals", "locals"}
_ALL = "without variables, as none were saved"


class Verdict(Enum):
    """Of one cell; the values are the columns of the table."""

    SAME = "identical"
    VARIES = "differ also between plain runs"
    NAMED = "differ, the loss named"
    UNNAMED = "differ, nothing named"


@dataclass(frozen=True, slots=True)
class Told:
    """One sentence.

    Attributes:
        at: the place of the cell that showed it.
    """

    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Lost:
    """What a sentence names as lost.

    Attributes:
        names: variables.
        settings: of the process, or of a library.
        labels: numbers of cells that are not in the state; `everything` stands for all before.
    """

    names: frozenset[str] = frozenset()
    settings: frozenset[str] = frozenset()
    labels: frozenset[int] = frozenset()
    everything: bool = False


def lost(text: str) -> Lost:
    """What a sentence tells."""
    listed = [name for part in _LIST.findall(text) for names in _LISTED.findall(part) for name in names.split(", ")]
    results = {name for number in _RESULT.findall(" ".join(listed)) for name in ("Out", f"_{number}")}
    names = {name for name in listed if name.isidentifier()} | results
    labels = {int(label) for part in _SOME.findall(text) for label in re.findall(r"\d+", part)}
    for first, last in _FROM_TO.findall(text):
        labels |= set(range(int(first), int(last) + 1))
    settings = {name for name in listed if not name.isidentifier() and not _RESULT.match(name)}
    return Lost(frozenset(names), frozenset(settings), frozenset(labels), _ALL in text)


def died(shown: Shown) -> bool:
    """Whether the user has to run this cell again, and was told so."""
    return shown.error is not None and shown.error[0] in _DIED


def verdicts(
    sources: Sequence[str],
    plain: Sequence[Sequence[Shown]],
    seen: Sequence[Shown],
    told: Iterable[Told],
    again: Collection[int] = (),
) -> list[Verdict]:
    """One for each cell.

    Args:
        sources: of the cells.
        plain: what each of several runs in plain kernels showed.
        seen: what this run's document shows at its end.
        told: all that its user could read.
        again: places of cells that the user ran again because a sentence named them, or without what it named.
    """
    sentences = list(told)
    found = []
    for place, shown in enumerate(seen):
        if not shown.differs(plain[0][place]):
            found.append(Verdict.SAME)
        elif any(run[place].differs(plain[0][place]) for run in plain[1:]):
            found.append(Verdict.VARIES)
        else:
            named = _is_named(place, sources, sentences, again)
            found.append(Verdict.NAMED if named else Verdict.UNNAMED)
    return found


def _is_named(place: int, sources: Sequence[str], told: Sequence[Told], again: Collection[int]) -> bool:
    """Whether what was named lost, or ran twice, can reach this cell, which ran after that, through names."""
    losses = [lost(sentence.text) for sentence in told if sentence.at <= place or place in again]
    if place in again or any(loss.everything or loss.settings for loss in losses):
        return True
    names = {name for loss in losses for name in loss.names}
    before = [cell for cell in again if cell < place]
    names |= {name for cell in before for name in bound(sources[cell])} | (_OF_NUMBERS if before else set())
    return bool(reached(names, sources[: place + 1]) & mentioned(sources[place]))


def reached(names: set[str], sources: Sequence[str]) -> set[str]:
    """The names whose values may come from `names`, in cells that ran one after another."""
    grown = set(names)
    while True:
        more = {name for source in sources if mentioned(source) & grown for name in bound(source)} - grown
        if not more:
            return grown
        grown |= more


def bound(source: str) -> set[str]:
    """Names that a cell binds; of one that cannot be parsed, none."""
    found: set[str] = set()
    for node in _nodes(source):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= _root(node)
    return found


def _root(node: ast.expr) -> set[str]:
    """`a` of `a.b[c] = ...`."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def mentioned(source: str) -> set[str]:
    """Names that a cell reads or binds."""
    return {node.id for node in _nodes(source) if isinstance(node, ast.Name)} | bound(source)


def _nodes(source: str) -> list[ast.AST]:
    body = source.split("\n", 1)[1] if source.startswith("%%") and "\n" in source else source
    try:
        return list(ast.walk(ast.parse(TransformerManager().transform_cell(body))))
    except SyntaxError:
        return []
