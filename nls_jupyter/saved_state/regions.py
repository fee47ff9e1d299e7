"""What picklers and the libraries share: the storages to save, and stand-ins for what only a restore has."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.blobs import pieces_of
from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nls_jupyter.saved_state.arena import NoRoomError
    from nls_jupyter.saved_state.manifest import Where
    from nls_jupyter.saved_state.store import Source


class UnsavableError(Exception):
    """Raised by a reducer for an object that cannot be saved.

    Attributes:
        what: how to call the object, with its article.
        culprit: the object.
        advice: what the user can do, or nothing.
    """

    def __init__(self, what: str, culprit: object, advice: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.culprit = culprit
        self.advice = advice

    def reason_for(self, value: object) -> str:
        """Why `value`, the culprit itself or something that holds it, is not saved."""
        who = f"{self.what} cannot be saved" if self.culprit is value else f"it holds {self.what}"
        return f"{who}; {self.advice}" if self.advice else who


class NoRoomForError(UnsavableError):
    """Memory for which nothing is left."""

    def __init__(self, size_bytes: int, room_bytes: int, why_no_spill: str, culprit: object) -> None:
        super().__init__("memory without room", culprit)
        self._sizes = (format_bytes(size_bytes), format_bytes(max(room_bytes, 0)))
        self._why_no_spill = why_no_spill

    @classmethod
    def maker(cls, error: NoRoomError, size_bytes: int) -> Callable[[object], UnsavableError]:
        """What makes one for each object that shows the memory."""
        return functools.partial(cls, size_bytes, error.room_bytes, error.why_no_spill)

    def reason_for(self, value: object) -> str:
        """See `UnsavableError`."""
        whose = "its" if self.culprit is value else "it holds an array whose"
        size, room = self._sizes
        return f"{whose} {size} are more than the {room} that are left for saved state ({self._why_no_spill})"


def refuse(what: str) -> Callable[[Any], Any]:
    """A reducer for a type whose objects cannot be saved."""

    def reduce(culprit: object) -> Any:
        raise UnsavableError(what, culprit)

    return reduce


def resolve(what: str) -> Any:
    """What a `Reference` stands for; the unpickler of a restore replaces this function."""
    raise RuntimeError(f"A saved state's {what} exists only while it is being restored.")


class Reference:
    """In the stream it stands for something of the restore that reads it."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return resolve, (self._what,)


#: The `store.Reader` of the restore.
READER = Reference("reader")
#: The namespace that is being filled.
NAMESPACE = Reference("namespace")


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Host memory as a `store.Source`."""

    content: memoryview
    size_bytes: int
    where: Where = "host"

    def memory(self) -> memoryview:
        """See `Source`."""
        return self.content

    def pieces(self) -> Iterator[memoryview]:
        """See `Source`."""
        return pieces_of(self.content)


class Storage:
    """A storage that several arrays share: pickled once, restored by `load(reader, region, *args)`."""

    def __init__(self, region: int, load: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.region = region
        self._reduced = (load, (READER, region, *args))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._reduced


class Regions:
    """The storages of one component, in the order in which the pickler meets them."""

    def __init__(self) -> None:
        #: Why memory cannot be saved, by key: there was no room for it.
        self.refused: dict[object, Callable[[object], UnsavableError]] = {}
        #: A copy of the process saves: what a fork shares goes on changing.
        self.in_copy = False
        #: A memory-mapped array was met, in whatever component.
        self.met_mapped = False
        self.reset()

    def reset(self) -> None:
        """Begin a component."""
        self.sources: list[Source] = []
        #: How the walk knows each of `sources`; `None` for memory that only the pickler met.
        self.keys: list[object] = []
        #: Out-of-band buffers of other types' own reducers, in stream order: indices of `sources`.
        self.buffers: list[int] = []
        #: What comes back otherwise than it was.
        self.notes: list[str] = []
        self.met_gpu = False
        #: Types of objects that may be in a cycle with a container that needs their hash.
        self.hashed: set[type] = set()
        #: Objects whose attributes came into the stream with another one's, or are coming now, by identity.
        self.brought: set[int] = set()
        self._storages: dict[object, Storage] = {}

    def add(self, source: Source, key: object = None, culprit: object = None) -> int:
        """Save `source` as a region of its own; gives its index. Raises UnsavableError when there was no room."""
        if key is not None and key in self.refused:
            raise self.refused[key](culprit)
        self.sources.append(source)
        self.keys.append(key)
        self.met_gpu |= source.where == "gpu"
        return len(self.sources) - 1

    def add_buffer(self, source: Source) -> None:
        """Save an out-of-band buffer."""
        self.buffers.append(self.add(source))

    def storage(
        self,
        key: object,
        source: Callable[[], Source],
        load: Callable[..., Any],
        *args: Any,
        culprit: object = None,
    ) -> Storage:
        """The storage known by `key`, added when it is met for the first time."""
        known = self._storages.get(key)
        if known is None:
            known = self._storages[key] = Storage(self.add(source(), key, culprit), load, args)
        self.met_gpu |= self.sources[known.region].where == "gpu"
        return known

    def note(self, text: str) -> None:
        """Something of the name that is being pickled comes back changed; the user reads `text`."""
        if text not in self.notes:
            self.notes.append(text)

    def size_bytes(self, first: int = 0) -> int:
        """Bytes of the regions from index `first` on."""
        return sum(source.size_bytes for source in self.sources[first:])

    def rewind(self, count: int) -> None:
        """Forget all but the first `count` regions, and what was brought into the stream."""
        self.brought.clear()
        del self.sources[count:], self.keys[count:]
        while self.buffers and self.buffers[-1] >= count:
            self.buffers.pop()
        while self._storages and next(reversed(self._storages.values())).region >= count:
            self._storages.popitem()
