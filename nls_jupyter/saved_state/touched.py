"""Which names the code that ran since the last save cannot have touched: what was saved of them is right still.

Code gets at an object by a name, or from somebody who holds it. So the names of one component are untouched if

- none of them is among the words of the code that ran, nor of the code that this leads to: functions, classes and
  instances behind the names that it touches, as they were before it ran; and
- they are *alone* (`alone.py`): nobody but these names holds any object of theirs.

What is not alone counts as touched by whatever runs, and its code as running: a callback that a library was given, a
figure of pyplot, a handler of signals. So does what lies beside the names (hooks, modules of the user's), and so do
functions of the notebook's that no name leads to.

What cannot be followed so has words of its own, `_UNFOLLOWED`: whoever says one of them may touch anything.
"""

from __future__ import annotations

import functools
import gc
import re
import sys
import threading
import types
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state import other_threads
from nls_jupyter.saved_state.alone import MAIN, UNPICKLES, words_of
from nls_jupyter.saved_state.manifest import is_beside, is_result

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from nls_jupyter.saved_state.alone import Counts

# Ways to objects without their names, and to code that nobody has seen: frames, the namespace as a whole, pickles of
# the notebook's classes, texts that are run.
_UNFOLLOWED = frozenset(
    f"""
    exec eval query globals locals vars __globals__ {MAIN} runpy doctest unittest
    get_ipython user_ns user_global_ns user_module InteractiveShell InteractiveConsole
    _getframe _current_frames currentframe inspect f_back f_globals f_locals tb_frame
    gi_frame cr_frame ag_frame last_exc last_value last_traceback pdb breakpoint
    settrace setprofile monitoring gc __subclasses__ ctypes _ctypes cffi
    pickle _pickle Unpickler read_pickle cloudpickle dill joblib shelve jsonpickle
    __name__ __module__ __code__ FunctionType get_type_hints cProfile
    {" ".join(UNPICKLES)}
    """.split()
)
# What IPython calls values that cells showed.
_RESULTS = re.compile(r"_{1,3}|_\d+|Out|_oh")
# `%autoreload` changes objects of classes that it loads again, wherever they are.
_RELOADS = "IPython.extensions.autoreload"


@dataclass(frozen=True, slots=True)
class _Group:
    """Names of one component, as they were at a look.

    Attributes:
        ids: the identities of their values.
        words: of all code that they lead to.
        functions: those of the notebook's that they lead to, by identity.
        alone: see `alone.py`.
    """

    ids: dict[str, int]
    words: frozenset[str]
    functions: frozenset[int]
    alone: bool


class Touched:
    """What ran since the last look, and what that look found.

    Attributes:
        why_all: why everything may have been touched, for tests and the log; `None`: what ran can be followed.
    """

    def __init__(self) -> None:
        self.why_all: str | None = "nothing was looked at"
        self._said: set[str] = set()
        self._groups: dict[str, _Group] = {}
        self._outside = _Outside()
        self._threads: dict[int, int] = {}

    def anything(self, why: str) -> None:
        """What happens now cannot be followed."""
        self.why_all = self.why_all or why

    def ran(self, code: types.CodeType) -> None:
        """Told of a cell's code before it runs and after: a save in the middle forgets what was told before."""
        self._said |= words_of(code)
        if threading.current_thread() is not threading.main_thread():
            self.anything("a cell ran in another thread")

    def looked_up(self, text: str) -> None:
        """Somebody asked after objects that are named in a text; attributes of theirs may have code."""
        self._said |= {*re.findall(r"\w+", text)}

    def following(self, run_code: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """IPython's `run_code`, which tells what it runs."""

        @functools.wraps(run_code)
        async def run(code: types.CodeType, *args: Any, **options: Any) -> Any:
            self.ran(code)
            try:
                return await run_code(code, *args, **options)
            finally:
                self.ran(code)

        return run

    def untouched(self, names: Mapping[str, Any]) -> set[frozenset[str]]:
        """Those of `names`, by component, that are as they were at the last look, with all objects behind them."""
        if self.why_all is None and other_threads.run_times_ns() != self._threads:
            self.anything("a thread ran")
        if _RELOADS in sys.modules:
            self.anything("code is changed before cells")
        if self.why_all is not None:
            return set()
        reached = self._reached()
        untouched = [group for group in _each(self._groups) if id(group) not in reached]
        if self.why_all is not None:
            return set()
        return {frozenset(group.ids) for group in untouched if group.ids == _ids(names, group.ids)}

    def _reached(self) -> set[int]:
        """The groups that what ran leads to, by identity."""
        words = self._said | self._outside.words
        todo = [group for group in _each(self._groups) if not group.alone]
        todo += self._named_by(words)
        reached: set[int] = set()
        while todo:
            group = todo.pop()
            if id(group) not in reached:
                reached.add(id(group))
                todo += self._named_by(group.words - words)
                words |= group.words
        if unfollowed := words & _UNFOLLOWED:
            self.anything(f"{min(unfollowed)} cannot be followed")
        return reached

    def _named_by(self, words: Iterable[str]) -> list[_Group]:
        named = [self._groups[word] for word in words if word in self._groups]
        if any(map(_RESULTS.fullmatch, words)):
            named += [group for group in _each(self._groups) if any(map(is_result, group.ids))]
        return named

    def look(
        self,
        components: Iterable[tuple[Sequence[str], int]],
        names: Mapping[str, Any],
        namespace: Mapping[str, Any],
        counts: Counts,
    ) -> None:
        """Look at what was saved just now, for what runs from now on.

        Args:
            components: names that were saved together, and of how many objects.
            names: all of them.
            namespace: the globals of the notebook's functions.
            counts: of these names.
        """
        untouched = self.untouched(names)
        groups: dict[str, _Group] = {}
        self.why_all, self._said = None, set()
        for members, nodes in components:
            group = self._groups.get(members[0])
            if group is None or frozenset(members) not in untouched:
                found = counts.of(members, nodes)
                alone = found.alone and all(is_result(name) or not is_beside(name) for name in members)
                group = _Group(_ids(names, members), frozenset(found.words), frozenset(found.functions), alone)
                if found.beyond:
                    self.anything(f"{members[0]} leads too far")
            groups |= dict.fromkeys(members, group)
        self._groups = groups
        self._outside.look(namespace, frozenset().union(*(group.functions for group in _each(groups))))
        self._threads = other_threads.run_times_ns()


class _Outside:
    """Functions of the notebook's that no name leads to: whoever holds them may call them.

    Each function holds the namespace that its names are looked up in. What holds it beside functions stays the same:
    if there are more than at the last look, somebody has got a function since.

    Attributes:
        words: of the code of these functions.
    """

    def __init__(self) -> None:
        self.words: frozenset[str] = frozenset()
        self._known: weakref.WeakSet[types.FunctionType] = weakref.WeakSet()
        self._others = 0

    def look(self, namespace: Mapping[str, Any], named: frozenset[int]) -> None:
        """Find them, where `named` are those that names lead to, by identity."""
        if sys.getrefcount(namespace) == self._others + len(self._known) + len(named):
            return
        found = [thing for thing in gc.get_referrers(namespace) if type(thing) is types.FunctionType]
        outside = [function for function in found if id(function) not in named]
        self._known = weakref.WeakSet(outside)
        self._others = sys.getrefcount(namespace) - len(outside) - len(named)
        self.words = frozenset().union(*(words_of(function.__code__) for function in outside))


def _each(groups: Mapping[str, _Group]) -> list[_Group]:
    return list({id(group): group for group in groups.values()}.values())


def _ids(names: Mapping[str, Any], which: Iterable[str]) -> dict[str, int]:
    return {name: id(names[name]) if name in names else 0 for name in which}
