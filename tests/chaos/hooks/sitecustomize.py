"""Makes the named points of `chaos_points` into places where a process can be hit. The product knows nothing of it.

Python imports this file at its start in every process whose PYTHONPATH has this folder. `$CHAOS_DIRECTORY/armed`
names the one point that is armed, and on which passage; who comes there takes the file away, so that it happens once,
and then sends the signal: to itself, to its parent (a GPU process's guardian), to the GPU processes below it (a
kernel's). The guardian is a plain script in an isolated interpreter, so its own lines are no points.
"""

from __future__ import annotations

import faulthandler
import functools
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

from chaos_points import POINTS, Point

_ARMED = Path(os.environ.get("CHAOS_DIRECTORY", "/nonexistent")) / "armed"
_passages: Counter[tuple[str, str]] = Counter()


def pass_by(point: Point) -> None:
    """A process is at the point."""
    try:
        armed = json.loads(_ARMED.read_bytes())
    except (OSError, ValueError):
        return
    if armed["point"] != point.name:
        return
    _passages[armed["id"], point.name] += 1
    if _passages[armed["id"], point.name] < armed["passage"]:
        return
    mine = _ARMED.with_name(f"taken-{os.getpid()}")
    try:
        _ARMED.rename(mine)
    except FileNotFoundError:
        return
    victims = {"self": [os.getpid()], "parent": [os.getppid()], "gpu": _gpu_processes()}[point.victim]
    mine.write_text(json.dumps({**armed, "victims": victims}))
    mine.rename(_ARMED.with_name("fired"))
    for victim in victims:
        os.kill(victim, signal.Signals[armed["signal"]])


def _gpu_processes() -> list[int]:
    """Those below this process, the one that stands by included, however many guardians are between."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            children.setdefault(int(stat.read_bytes().rpartition(b")")[2].split()[1]), []).append(int(stat.parent.name))
        except OSError:
            continue
    below, waiting = [], [os.getpid()]
    while waiting:
        below += (found := children.get(waiting.pop(), []))
        waiting += found
    return [pid for pid in below if _is_gpu_process(pid)]


def _is_gpu_process(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"nls_jupyter.gpu_process" in words and b"-S" not in words  # a guardian has that among its own words


def _wrapped(function: Callable[..., Any], points: Sequence[Point]) -> Callable[..., Any]:
    entries = [point for point in points if point.side == "entry"]
    exits = [point for point in points if point.side == "exit"]

    def passing(some: Sequence[Point]) -> None:
        for point in some:
            pass_by(point)

    @functools.wraps(function)
    def plain(*args: Any, **options: Any) -> Any:
        passing(entries)
        outcome = function(*args, **options)
        passing(exits)
        return outcome

    @functools.wraps(function)
    async def awaited(*args: Any, **options: Any) -> Any:
        passing(entries)
        outcome = await function(*args, **options)
        passing(exits)
        return outcome

    return awaited if inspect.iscoroutinefunction(function) else plain


def wrap(module: ModuleType) -> None:
    """Replace the functions of a module that has just been executed."""
    functions: dict[str, list[Point]] = {}
    for point in POINTS:
        if point.module == module.__name__:
            functions.setdefault(point.function, []).append(point)
    for path, points in functions.items():
        *above, name = path.split(".")
        owner: Any = module
        for part in above:
            owner = getattr(owner, part)
        own = vars(owner)[name]
        if isinstance(own, classmethod | staticmethod):
            setattr(owner, name, type(own)(_wrapped(own.__func__, points)))
        else:
            setattr(owner, name, _wrapped(own, points))


def _execute(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    execute(module)
    wrap(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _MODULES:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                loader: Any = spec.loader
                loader.exec_module = functools.partial(_execute, loader.exec_module)
                return spec
        return None


def _tell_stacks() -> None:
    """SIGUSR2 has a process of ours write where its threads are: for whoever wonders why a cell does not end."""
    if any(word in " ".join(sys.orig_argv) for word in ("ipykernel", "gpu_process", "nls_scheduler")):
        file = (_ARMED.parent / f"stacks-{os.getpid()}").open("w")
        faulthandler.register(signal.SIGUSR2, file=file, all_threads=True)


_MODULES = frozenset(point.module for point in POINTS)
if "CHAOS_DIRECTORY" in os.environ:
    sys.meta_path.insert(0, _Finder())
    _tell_stacks()
