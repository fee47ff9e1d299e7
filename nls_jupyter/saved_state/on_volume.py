"""Saved state as files on the user's volume, which outlive the kernel and its machine: whole, or not there.

    FOLDER/digits-1f0c9a27/manifest.json      what is there, for people too
                           1764112225.memory  the memory file as it is, without what its index does not refer to
                           1764112225.spill   the spill file, if there was one
                           earlier.json       one that nobody had brought back when the next one came
                           begun.json         what is being kept, or was when its kernel was killed
           digits-1f0c9a27.unread-1764…  a folder whose manifests could not be read when something was to be kept in it

The manifests name the files that count, and a rename is the commit. What none names is a draft that was never finished,
or what the state before consisted of. Nothing is unpickled here. Who can write these files can run code as
whoever restores them: they have to be the user's own, and nobody else's to write.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import xxhash

from nls_jupyter.saved_state import index
from nls_jupyter.saved_state.arena import Arena, SavedStateDamagedError
from nls_jupyter.saved_state.extents import MEMORY, Extent
from nls_jupyter.saved_state.kept import DATA, Begun, Found, Kept
from nls_jupyter.saved_state.room import MachineRoom
from nls_jupyter.saved_state.volume_files import (
    KeptStateError,
    is_written,
    new,
    open_own,
    read,
    refuse_others,
    remove,
    remove_unlocked,
    told,
)
from nls_scheduler import __version__
from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from nls_jupyter.saved_state.manifest import Manifest

_MANIFEST: Final = "manifest.json"
_EARLIER: Final = "earlier.json"
#: A notebook's own folder: its name, and digits for its path.
_FOLDER: Final = re.compile(r".*-[0-9a-f]{8}(\.unread-\d+)?", re.DOTALL)
_BEGUN: Final = "begun.json"
#: As long as they are written they are locked: whoever removes what no manifest names leaves them alone.
_DRAFT: Final = re.compile(r"\d+\.draft")
_KINDS: Final = ("memory", "spill")
_HEADER: Final = Extent(MEMORY, 0, 4096)  # the superblocks
_COPIED_AT_ONCE: Final = 1 << 26
_TRIES: Final = 3


class KeptFiles:
    """The files of one notebook. Every method may take as long as the volume does, and raises KeptStateError.

    Args:
        folder: where those of all notebooks lie; made where it is missing, its parent is not.
        notebook: as Jupyter calls it: its path.
    """

    def __init__(self, folder: Path, notebook: str) -> None:
        self.folder = folder
        self.notebook = notebook
        stem = re.sub(r"[^\w.-]+", "_", Path(notebook).stem)[:40]
        self._own = folder / f"{stem}-{hashlib.sha256(notebook.encode()).hexdigest()[:8]}"

    def look(self, *, earlier: bool = False) -> Kept | None:
        """What is there; `None` for nothing. `earlier`: the one before it, which nobody has brought back."""
        with self._opened() as own:
            return None if own is None else _read_manifest(own, self._own, _EARLIER if earlier else _MANIFEST)

    def begin(self, names: Sequence[str], cell: str | None) -> TextIO:
        """Note what is to be kept, before anything that takes long: the note outlives a kernel that is killed then.

        Returns it, for `end`. It is locked until then, so that others know whether its kernel lives.
        """
        self._set_aside_unread()
        with self._opened(make=True) as own:
            assert own is not None  # noqa: S101 - it was made
            with contextlib.ExitStack() as opened:
                note = opened.enter_context(new(own, draft := _draft_name()))
                json.dump({"written": _now(), "cell": cell, "names": list(names)}, note)
                note.flush()
                os.rename(draft, _BEGUN, src_dir_fd=own, dst_dir_fd=own)
                opened.pop_all()
                return note

    def end(self, note: TextIO) -> None:
        """What was noted is kept, or told to be lost."""
        with note, self._opened() as own:
            if own is not None:
                remove(own, _BEGUN)

    def begun(self) -> Begun | None:
        """What a kernel has begun to keep and not kept, if there is such."""
        with self._opened() as own:
            return None if own is None else read(own, self._own, _BEGUN, _begun)

    def clear(self) -> None:
        """Remove what a kernel has left that was killed while it wrote."""
        with self._opened() as own:
            if own is not None and (begun := read(own, self._own, _BEGUN, _begun)) and not begun.goes_on:
                _sweep(own, self._own)
                remove(own, _BEGUN)

    def write(
        self,
        descriptors: Sequence[int],
        manifest: Manifest,
        made_in: Mapping[str, str],
        taken: Collection[str] = (),
        *,
        interrupted: bool = False,
    ) -> Kept:
        """Put a saved state in place of what is there, unless it is the same. What is there stands until then.

        What nobody has brought back is not lost by that: it stays as the earlier one, until somebody does. What cannot
        be read, such as a newer version's, is set aside with the whole folder.

        Args:
            descriptors: of its files, which may be saved into meanwhile.
            manifest: what is in it.
            made_in: the cell that made a name, for names that were not saved.
            taken: digests of what was there that this state has in it, or had.
            interrupted: its last cell was, by the end of its kernel.
        """
        arena = Arena.adopt(descriptors, MachineRoom())
        try:
            self._set_aside_unread()
            with self._opened(make=True) as own:
                assert own is not None  # noqa: S101 - it was made
                for _ in range(_TRIES):
                    kept = self._written(own, arena, manifest, made_in, taken, interrupted=interrupted)
                    if kept is not None:
                        return kept
            raise KeptStateError("cells went on while it was written")
        except SavedStateDamagedError as error:
            raise KeptStateError(str(error).rstrip(".")) from error
        finally:
            arena.close()

    def load(self, *, earlier: bool = False) -> tuple[Kept, list[int]]:
        """What is there, and descriptors of a copy in memory, the caller's to close. `earlier`: see `look`."""
        with self._opened() as own:
            kept = None if own is None else _read_manifest(own, self._own, _EARLIER if earlier else _MANIFEST)
            if own is None or kept is None:
                raise KeptStateError(f"nothing {'earlier ' * earlier}is kept of {self.notebook} in {self.folder}")
            mine = sys.implementation.cache_tag
            if kept.versions.get("python") != mine:
                raise KeptStateError(f"it was saved by {kept.versions.get('python')}, and this is {mine}")
            room_bytes = MachineRoom().memory_bytes()
            if kept.size_bytes > room_bytes:
                raise KeptStateError(
                    f"its {format_bytes(kept.size_bytes)} are more than {format_bytes(room_bytes)} of memory"
                )
            return kept, _into_memory(own, self._own, kept)

    def volume(self) -> int | None:
        """The number of the device that the folder is on, or would be; `None`: there is no such place."""
        for place in (self.folder, self.folder.parent):
            with contextlib.suppress(OSError):
                return place.stat().st_dev
        return None

    def drop(self) -> bool:
        """Remove what is there. False: there was nothing."""
        with self._opened() as own:
            if own is None:
                return False
            # First what the rest hangs on.
            mine = sorted(_mine(own), key=lambda name: name not in (_MANIFEST, _EARLIER))
            for name in mine:
                os.unlink(name, dir_fd=own)
        with contextlib.suppress(OSError):  # there is more than what is ours
            self._own.rmdir()
        return bool(mine)

    def _set_aside_unread(self) -> None:
        with self._opened() as own:
            if own is None:
                return
            try:
                for name in (_MANIFEST, _EARLIER):
                    _read_manifest(own, self._own, name)
            except KeptStateError:
                self._own.rename(self._own.with_name(f"{self._own.name}.unread-{time.time_ns()}"))

    @contextlib.contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int | None]:
        """The notebook's own folder; `None` where it is missing."""
        with told(self._own):
            if make:
                for folder in (self.folder, self._own):
                    with contextlib.suppress(FileExistsError):
                        folder.mkdir(mode=0o700)
            try:
                own = os.open(self._own, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except FileNotFoundError:
                if make:
                    raise
                yield None
                return
            try:
                refuse_others(own, self._own)
                yield own
            finally:
                os.close(own)

    def _written(
        self,
        own: int,
        arena: Arena,
        manifest: Manifest,
        made_in: Mapping[str, str],
        taken: Collection[str],
        *,
        interrupted: bool,
    ) -> Kept | None:
        """`None`: a save came in between, and what was copied is of no state."""
        committed = arena.index()
        extents, content = _parts(arena)
        if (same := _read_manifest(own, self._own)) is not None and same.content == content:
            return same
        size_bytes = sum(extent.size_bytes for extent in extents)
        self._refuse_full(own, size_bytes)
        stem = str(time.time_ns())
        names = tuple(f"{stem}.{kind}" for kind, _ in zip(_KINDS, arena.descriptors(), strict=False))
        lost = {name.name for name in manifest.missing}
        kept = Kept(
            notebook=self.notebook,
            written=_now(),
            cell=manifest.cell,
            variables=manifest.variables,
            missing=manifest.missing,
            made_in={name: cell for name, cell in made_in.items() if name in lost},
            size_bytes=size_bytes,
            versions=_versions(manifest),
            files=names,
            content=content,
            interrupted=interrupted,
        )
        try:
            with contextlib.ExitStack() as written:
                for file, (name, source) in enumerate(zip(names, arena.descriptors(), strict=True)):
                    target = written.enter_context(new(own, name)).fileno()
                    _copy(source, target, [extent for extent in extents if extent.file == file])
                    os.fsync(target)
                if arena.index() != committed:
                    return None
                # Only now: another kernel of this notebook may have kept something meanwhile.
                before, earlier = (_read_manifest(own, self._own, name) for name in (_MANIFEST, _EARLIER))
                if earlier is not None and earlier.content in taken:
                    os.unlink(_EARLIER, dir_fd=own)
                    earlier = None
                if earlier is None and before is not None and before.content not in taken:
                    _commit(own, before, _EARLIER)
                _commit(own, kept)
        finally:
            _sweep(own, self._own)
        return kept

    def _refuse_full(self, own: int, size_bytes: int) -> None:
        disk = os.fstatvfs(own)
        room_bytes = disk.f_bavail * disk.f_frsize
        if size_bytes > room_bytes:
            raise KeptStateError(
                f"{format_bytes(size_bytes)} do not fit in the {format_bytes(room_bytes)} that {self.folder} has left"
            )


def notebooks(folder: Path) -> tuple[list[Found], list[str]]:
    """What is kept there of any notebook, the newest first, and why some of it is not read."""
    found, unread = [], []
    with told(folder):
        if not folder.exists() and folder.parent.exists():
            return [], []  # it is made with the first that is kept
        for place in sorted(folder.iterdir()):
            if not _FOLDER.fullmatch(place.name):
                continue  # a volume has more than what is ours
            try:
                with told(place):
                    found += _all_in(place)
            except KeptStateError as error:
                unread.append(str(error))
    return sorted(found, key=lambda one: one.kept.written, reverse=True), unread


def _all_in(place: Path) -> list[Found]:
    own = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        refuse_others(own, place)
        both = [(_read_manifest(own, place, name), name == _EARLIER) for name in (_MANIFEST, _EARLIER)]
        return [Found(kept, earlier, _damage(own, kept)) for kept, earlier in both if kept is not None]
    finally:
        os.close(own)


def _damage(own: int, kept: Kept) -> str | None:
    """What its files' names and sizes tell; what is in them is read when it is brought back."""
    there = set(os.listdir(own))
    if missing := [name for name in kept.files if name not in there]:
        return f"{missing[0]} is missing"
    sizes = (os.stat(name, dir_fd=own, follow_symlinks=False).st_size for name in kept.files)
    return "its files have been cut short" if sum(sizes) < kept.size_bytes else None


def _parts(arena: Arena) -> tuple[list[Extent], str]:
    """The extents that the committed index refers to, with its own, and a digest of what they hold."""
    where, content, chunks = index.read(arena)
    # Beside what is saved, an index says what the save was like.
    names = {**content, "recurring_s": 0, "manifest": {**content["manifest"], "left": 0}}
    digest = xxhash.xxh3_128(json.dumps(names, sort_keys=True))
    for chunk in chunks:
        digest.update(chunk.digest)
    extents = {chunk.extent for chunk in chunks if chunk.extent is not None}
    return sorted({_HEADER, where, *extents}), digest.hexdigest()


def _versions(manifest: Manifest) -> dict[str, str]:
    found = {"python": str(sys.implementation.cache_tag), "nls-jupyter": __version__}
    for package in sorted({name.type_name.partition(".")[0] for name in manifest.saved if "." in name.type_name}):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


# -- files ----------------------------------------------------------------------------------------------------------
def _draft_name() -> str:
    return f"{time.time_ns()}.draft"


def _copy(source: int, target: int, extents: Sequence[Extent]) -> None:
    """To the same positions; what lies between stays a hole."""
    for _, position, size_bytes in extents:
        os.lseek(target, position, os.SEEK_SET)
        end = position + size_bytes
        while position < end:
            copied = os.sendfile(target, source, position, min(end - position, _COPIED_AT_ONCE))
            if not copied:
                raise SavedStateDamagedError("The saved state ends before one of its parts does.")
            position += copied


def _commit(own: int, kept: Kept, name: str = _MANIFEST) -> None:
    with new(own, draft_name := _draft_name()) as draft:
        json.dump(kept.to_json(), draft, indent=1)
        draft.flush()
        os.fsync(draft.fileno())
        os.rename(draft_name, name, src_dir_fd=own, dst_dir_fd=own)
    if name == _MANIFEST:
        remove(own, _BEGUN)  # who is killed from here on has kept it
    os.fsync(own)


def _sweep(own: int, place: Path) -> None:
    """Remove what no manifest names, as far as that can be done now; nothing where one of them cannot be read."""
    with contextlib.suppress(OSError, KeptStateError):
        named = {_MANIFEST, _EARLIER, _BEGUN}
        for manifest in (_MANIFEST, _EARLIER):
            kept = _read_manifest(own, place, manifest)
            named.update(() if kept is None else kept.files)
        for name in _mine(own):
            if name not in named:
                remove_unlocked(own, name)


def _mine(own: int) -> list[str]:
    """Others may put something there too, as Jupyter does with `.ipynb_checkpoints`."""
    fixed = (_MANIFEST, _EARLIER, _BEGUN)
    return [name for name in os.listdir(own) if name in fixed or DATA.fullmatch(name) or _DRAFT.fullmatch(name)]


def _read_manifest(own: int, place: Path, name: str = _MANIFEST) -> Kept | None:
    return read(own, place, name, lambda content, _: Kept.from_json(content))


def _begun(content: Any, note: TextIO) -> Begun:
    datetime.fromisoformat(content["written"])
    return Begun(content["written"], content["cell"], tuple(content["names"]), is_written(note.fileno()))


def _into_memory(own: int, place: Path, kept: Kept) -> list[int]:
    sources: list[int] = []
    copies: list[int] = []
    try:
        sources += [open_own(own, name, place) for name in kept.files]
        arena = Arena.adopt(sources, MachineRoom())
        try:
            extents = _parts(arena)[0]
        finally:
            arena.close()
        for file, source in enumerate(sources):
            copies.append(os.memfd_create("nls-saved-state", os.MFD_CLOEXEC))
            _copy(source, copies[-1], [extent for extent in extents if extent.file == file])
    except BaseException as error:
        for copy in copies:
            os.close(copy)
        if isinstance(error, SavedStateDamagedError):
            raise KeptStateError(f"{place} is damaged: {str(error).rstrip('.')}") from error
        raise
    finally:
        for source in sources:
            os.close(source)
    return copies


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
