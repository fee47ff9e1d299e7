"""One component's names become frames of one pickle stream with one memo, so that what they share stays one object."""

from __future__ import annotations

import builtins
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state import bulk, set_orders
from nls_jupyter.saved_state.arena import NoRoomError
from nls_jupyter.saved_state.kinds import is_of, module_of
from nls_jupyter.saved_state.manifest import ChangedName, MissingName, SavedName, Where, type_name
from nls_jupyter.saved_state.pickler import Pickler, Probe, Rules
from nls_jupyter.saved_state.reasons import missing_name
from nls_jupyter.saved_state.reducers import GlobalsOf
from nls_jupyter.saved_state.regions import NAMESPACE
from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_jupyter.saved_state.looks import OwnGlobals
    from nls_jupyter.saved_state.store import Scratch


@dataclass(slots=True)
class _Untold:
    """What came into the stream before the names that lead to it: the first of them is told to have it.

    Attributes:
        memory_bytes: of it.
        met_gpu: whether there is memory of a Gpu in it.
        notes: what of it comes back otherwise.
    """

    memory_bytes: int = 0
    met_gpu: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Encoded:
    """What became of a component's names.

    Attributes:
        saved: in the order of the stream.
        missing: those that are not in it.
        changed: those that come back otherwise.
        keys: of the regions, see `Regions`.
        buffers: see `Regions`.
        hashed: how many types there are of which a hash may be in a cycle; see `Regions`.
    """

    saved: list[SavedName] = field(default_factory=list)
    missing: list[MissingName] = field(default_factory=list)
    changed: list[ChangedName] = field(default_factory=list)
    keys: list[object] = field(default_factory=list)
    buffers: list[int] = field(default_factory=list)
    hashed: int = 0


class Encoder:
    """Pickles a component name by name, leaving out those that fail.

    `flat`, `own_globals` and `sets` are a graph's, see there.
    """

    def __init__(
        self,
        scratch: Scratch,
        rules: Rules,
        holders: list[Any],
        flat: Mapping[int, int],
        own_globals: Mapping[str, list[OwnGlobals]],
        sets: Mapping[str, list[set[Any]]],
    ) -> None:
        self._scratch = scratch
        self._flat = flat
        self._own_globals = own_globals
        self._sets = sets
        self._rules = rules
        self._regions = rules.regions
        self._holders = holders
        self._regions.reset()
        self._pickler = Pickler(scratch, rules)
        self._probe: Probe | None = None
        self._where: dict[int, Where] = {}
        self._encoded = Encoded()
        self._untold: dict[int, _Untold] = {}
        self._has_builtins = False

    def encode(self, names: Mapping[str, Any]) -> Encoded:
        """Pickle everything; what a class or function needs while objects are made comes first."""
        own_globals = {name: self._own_globals[name] for name in names if name in self._own_globals}
        self._pickler.whole_globals = {id(each.content) for own in own_globals.values() for each in own}
        for name, value in sorted(names.items(), key=lambda item: rank(item[1])):
            if name in own_globals and id(own_globals[name]) not in self._untold:
                self._add_globals(own_globals[name])
            size_bytes = self._flat.get(id(value)) if len(names) == 1 else None
            self._add(name, value, None if size_bytes is None else bulk.words_of(value, size_bytes))
        self._add_orders([saved.name for saved in self._encoded.saved])
        self._encoded.keys, self._encoded.buffers = self._regions.keys, self._regions.buffers
        self._encoded.hashed = len(self._regions.hashed)
        return self._encoded

    def _add_globals(self, own: list[OwnGlobals]) -> None:
        """Pickle the dicts that functions have as their globals, before anything refers to what is in them.

        So a class is whole before an instance of it is made. Functions of one that fails go without it.
        """
        self._regions.met_gpu, self._regions.notes = False, []
        begin, begin_region = self._scratch.tell(), len(self._regions.sources)
        for each in own:
            if each.content is vars(builtins):
                if not self._has_builtins:
                    self._add_builtins()
                continue
            position, first_region = self._scratch.tell(), len(self._regions.sources)
            met_gpu, notes = self._regions.met_gpu, [*self._regions.notes]
            try:
                self._pickler.dump((each.content,))
            except SaveEndsError:
                raise
            except BaseException:  # noqa: BLE001 - told with each function, and with the dict's own name
                self._pickler.whole_globals.discard(id(each.content))
                if not each.is_held:
                    self._pickler.unheld_globals.add(id(each.content))
                self._forget(each.content, position, first_region)
                self._regions.met_gpu, self._regions.notes = met_gpu, notes
        memory_bytes = self._scratch.tell() - begin + self._regions.size_bytes(begin_region)
        self._untold[id(own)] = _Untold(memory_bytes, self._regions.met_gpu, self._regions.notes)

    def _add_builtins(self) -> None:
        """From here on the stream refers to Python's builtins as those of the process that reads it."""
        self._has_builtins = True
        reference = GlobalsOf(builtins.__name__)
        self._pickler.dump((reference,))
        memo = self._pickler.memo.copy()
        memo[id(vars(builtins))] = memo.pop(id(reference))[0], vars(builtins)
        self._pickler.memo = memo

    def _add(self, name: str, value: Any, words: list[str | bytes] | None) -> None:
        """Pickle one name; where there are `words` with no memo but of these, as nobody else leads to what it holds."""
        position, first_region = self._scratch.tell(), len(self._regions.sources)
        own = id(self._own_globals[name]) if name in self._own_globals else None
        untold = (own is not None and self._untold.get(own)) or _Untold()
        self._regions.met_gpu, self._regions.notes = untold.met_gpu, [*untold.notes]
        # `everything = globals()` is the new process's.
        content = NAMESPACE if id(value) in self._rules.namespaces else value
        if self._probe is not None and (reason := self._probe.why_not(content)) is not None:
            self._encoded.missing.append(MissingName(name, type_name(value), reason))
            return
        # A list of its own around each value: its place in the memo tells where this name began.
        frame = [content]
        try:
            if words is not None:
                self._pickler.dump((None, *words))
                self._pickler.fast = True
            self._pickler.dump(frame)
        except SaveEndsError:
            raise
        except BaseException as error:  # noqa: BLE001 - the user is told which name, and why
            self._forget(frame, position, first_region)
            if words is not None and not is_of(error, NoRoomError):  # it is not as it was when it was looked at
                self._pickler.fast = False
                self._add(name, value, None)
                return
            self._encoded.missing.append(missing_name(name, value, error))
            return
        if own is not None:
            self._untold[own] = _Untold()
        memory_bytes = self._scratch.tell() - position + self._regions.size_bytes(first_region) + untold.memory_bytes
        where = self._where.setdefault(id(value), "gpu" if self._regions.met_gpu else "host")
        self._encoded.saved.append(SavedName(name, type_name(value), memory_bytes, where))
        self._encoded.changed += [ChangedName(name, type_name(value), note) for note in self._regions.notes]

    def _add_orders(self, names: Iterable[str]) -> None:
        """Behind all names: the order of the sets that are in the stream, which pickle may change."""
        kept = {name: orders for name in names if (orders := set_orders.to_keep(self._sets.get(name, ())))}
        if not kept:
            return
        memo, position, first_region = self._pickler.memo.copy(), self._scratch.tell(), len(self._regions.sources)
        in_stream = {name: [order for order in orders if id(order.of) in memo] for name, orders in kept.items()}
        try:
            self._pickler.dump({name: [tuple(order) for order in orders] for name, orders in in_stream.items()})
        except SaveEndsError:
            raise
        except BaseException:  # noqa: BLE001 - a thread is at work on one of them: they come back in some order
            self._scratch.rewind(position)
            self._regions.rewind(first_region)

    def _forget(self, frame: object, position: int, first_region: int) -> None:
        """Back to before what failed and had `frame` as its first: objects pickled half must not be referred to."""
        self._scratch.rewind(position)
        self._regions.rewind(first_region)
        if self._pickler.fast:
            self._pickler.clear_memo()  # it is the only name
            return
        memo = self._pickler.memo.copy()
        begin = memo[id(frame)][0]
        memo = {key: entry for key, entry in memo.items() if entry[0] < begin}
        self._pickler.memo = memo
        self._probe = Probe(memo, self._rules, self._holders)


def rank(value: Any) -> int:
    """Where a name's turn comes.

    Modules, then functions and classes: code that runs while objects are made may need them. Plain containers last:
    what fails is rarely among them, and costs less while the memo is small.
    """
    if issubclass(type(value), types.ModuleType):
        return 0
    if issubclass(type(value), (type, types.FunctionType)):
        return 1
    return 2 if module_of(type(value)) != "builtins" else 3
