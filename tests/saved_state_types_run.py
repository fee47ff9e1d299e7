"""Saves objects of every type in one process and brings them back in another, and says what became of each."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import re
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import saved_state_types as zoo
from nls_jupyter import saved_state
from saved_state_portrait import portrait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WITHIN_S = 60.0
_AT_ONCE = 8
#: What differs from run to run, or fails the test.
PASSING = ("unstable", "wrong")
_CHANGING = re.compile(r"0x[0-9a-f]+|/[^ ']*/")


@dataclass
class Outcome:
    """What became of types' objects.

    Attributes:
        met: how many types there were.
        kept: those that came back as they were.
        named: why the others did not, as the user reads it.
        own: those that the standard library's pickle changes in the same way: it is their own doing.
        wrong: what was different although nobody said so.
        unmade: those of which no object could be made.
        unstable: those of which two objects made alike are not alike.
    """

    met: int = 0
    kept: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    own: list[str] = field(default_factory=list)
    wrong: dict[str, list[str]] = field(default_factory=dict)
    unmade: list[str] = field(default_factory=list)
    unstable: list[str] = field(default_factory=list)


def run(names: Sequence[str], kinds: dict[str, type]) -> Outcome:
    """Try types, some at once in a process; what is amiss there is tried again in one of its own."""
    outcome = Outcome(met=len(names))
    possible = [name for name in names if zoo.may_be_made(name)]
    outcome.unmade = [name for name in names if not zoo.may_be_made(name)]
    gc.collect()
    gc.freeze()  # or each child would copy all of it
    for first in range(0, len(possible), _AT_ONCE):
        some = possible[first : first + _AT_ONCE]
        for name, saved, again in zip(some, *_saved_and_restored(some, kinds), strict=True):
            if not _judge(name, saved, again, outcome):
                (alone,), (once_more,) = _saved_and_restored([name], kinds)
                if not _judge(name, alone, once_more, outcome):
                    _judge_a_difference(name, kinds[name], alone, once_more, outcome)
    return outcome


def _saved_and_restored(names: Sequence[str], kinds: dict[str, type]) -> tuple[list[Any], list[Any]]:
    saved, descriptors = _in_a_process(lambda channel: [_save(name, kinds[name], channel) for name in names])
    if saved is None:
        for descriptor in descriptors:
            os.close(descriptor)
        return [None] * len(names), [None] * len(names)
    left = iter(descriptors)
    of_each = [[next(left) for _ in range(one.get("descriptors", 0))] for one in saved]
    both = list(zip(of_each, saved, strict=True))
    again, _ = _in_a_process(lambda _: [_restore(fds, one["changed"]) if fds else None for fds, one in both])
    for descriptor in descriptors:
        os.close(descriptor)
    return saved, again or [None] * len(names)


def _judge(name: str, saved: Any, again: Any, outcome: Outcome) -> bool:
    """Note what became of a type; false where it has to be looked into."""
    if saved is None:
        return False
    if "unmade" in saved:
        outcome.unmade.append(name)
    elif "x" in saved["missing"]:
        outcome.named[name] = saved["missing"]["x"]
    elif "x" in saved["changed"]:
        outcome.named[name] = "changed: " + saved["changed"]["x"]
    elif again is None:
        return False
    elif again["missing"]:
        outcome.named[name] = "after a restore: " + next(iter(again["missing"].values()))
    elif saved["portrait"] == again["portrait"]:
        outcome.kept.append(name)
    else:
        return False
    return True


def _judge_a_difference(name: str, kind: type, saved: Any, again: Any, outcome: Outcome) -> None:
    """What differs between two objects that were made alike is by chance; what pickle changes too is their own."""
    if saved is None:
        outcome.unmade.append(name)  # the process that makes one dies
        return
    if again is None:
        outcome.wrong[name] = ["the process that restores it dies"]
        return
    found, _ = _in_a_process(lambda _: _plainly(name, kind, saved["kept"]))
    other = found or {"made": ()}
    if saved["alone"] != again["alone"] and other.get("pickled") == again["alone"]:
        outcome.own.append(name)
    elif len(other["made"]) != len(saved["portrait"]):
        outcome.unstable.append(name)
    else:
        lines = zip(saved["portrait"], again["portrait"], other["made"], strict=False)
        differing = [_difference(one, two) for one, two, three in lines if one == three and one != two]
        if differing:
            outcome.wrong[name] = differing[:6]
        else:
            outcome.unstable.append(name)


def _difference(one: str, two: str) -> str:
    parts, others = one.split(", "), two.split(", ")
    only = [", ".join(part for part in parts if part not in others), ", ".join(p for p in others if p not in parts)]
    return f"{one.partition(':')[0]}: {only[0][:300]} | {only[1][:300]}"


def _seen(names: dict[str, Any]) -> list[str]:
    """The portrait; what all of a process draw from begins anew for it: settings of the process are not kept here."""
    for module, seed in (("numpy.random", "seed"), ("torch", "manual_seed")):
        if module in sys.modules:
            getattr(sys.modules[module], seed)(0)
    return portrait(names)


def _save(name: str, kind: type, channel: socket.socket) -> Any:
    try:
        thing = zoo.make(name, kind)
        names = zoo.names_around(thing)
    except Exception:  # noqa: BLE001 - counted
        return {"unmade": True}
    saver = saved_state.Saver(patience_s=5)
    saver.save(names, cell=None)
    zoo.change(thing)
    manifest = saver.save(names, cell=None)
    descriptors = saver.descriptors()
    socket.send_fds(channel, [b" "], descriptors)
    changed = {other.name: other.change for other in manifest.changed}
    kept = {saved.name: names[saved.name] for saved in manifest.saved if saved.name not in changed}
    return {
        "descriptors": len(descriptors),
        "missing": {lost.name: _CHANGING.sub("", lost.reason) for lost in manifest.missing},
        "changed": changed,
        "kept": list(kept),
        "portrait": _seen(kept),
        "alone": _seen({"x": thing}),
    }


def _restore(descriptors: list[int], changed: dict[str, str]) -> Any:
    names: dict[str, Any] = {}
    with contextlib.closing(saved_state.Saver(patience_s=5)) as saver:
        report = saver.restore(descriptors, names)
    return {
        "missing": {lost.name: _CHANGING.sub("", lost.reason) for lost in report.missing},
        "portrait": _seen({name: value for name, value in names.items() if name not in changed}),
        "alone": _seen({"x": names.get("x")}),
    }


def _plainly(name: str, kind: type, kept: Sequence[str]) -> Any:
    """An object made like the saved one, and what the standard library's pickle makes of it."""
    thing = zoo.make(name, kind)
    names = zoo.names_around(thing)
    zoo.change(thing)
    found: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        again = pickle.loads(pickle.dumps(thing, 5))
        _seen(dict.fromkeys(("again", "x"), again))  # iterators are as far on as the others
        found["pickled"] = _seen({"x": again})
    return {**found, "made": _seen({each: names[each] for each in kept})}


def _in_a_process(work: Callable[[socket.socket], Any]) -> tuple[Any, list[int]]:
    """What `work` gave in a child of this process, `None` if it died or took too long; and descriptors that it sent."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        ours.close()
        _child(work, theirs)
    theirs.close()
    try:
        return _receive(ours)
    finally:
        ours.close()
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                end(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _receive(ours: socket.socket) -> tuple[Any, list[int]]:
    deadline_s = time.monotonic() + _WITHIN_S
    content, descriptors = bytearray(), []
    while (left_s := deadline_s - time.monotonic()) > 0:
        ours.settimeout(left_s)
        try:
            piece, fds, _, _ = socket.recv_fds(ours, 1 << 20, 250)
        except TimeoutError:
            return None, descriptors
        descriptors += fds
        if not piece:
            break
        content += piece
    text = bytes(content).strip()
    return (json.loads(text) if text else None), descriptors


def _child(work: Callable[[socket.socket], Any], theirs: socket.socket) -> None:
    """Never returns, and runs nobody's last wishes."""
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        theirs.sendall(json.dumps(work(theirs)).encode("utf-8", "backslashreplace"))
        theirs.shutdown(socket.SHUT_WR)
    finally:
        os._exit(0)


def merged(outcomes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The outcomes of all parts as one, with what is named grouped by its reason."""
    named: dict[str, list[str]] = {}
    for outcome in outcomes:
        for name, reason in outcome["named"].items():
            named.setdefault(reason, []).append(name)
    return {
        "versions": outcomes[0]["versions"],
        "types": sum(outcome["met"] for outcome in outcomes),
        **{each: sum(len(outcome[each]) for outcome in outcomes) for each in ("kept", "unmade")},
        "named": {reason: sorted(named[reason]) for reason in sorted(named)},
        **{each: sorted(name for outcome in outcomes for name in outcome[each]) for each in ("own", "unstable")},
        "wrong": {name: lines for outcome in outcomes for name, lines in outcome["wrong"].items()},
    }


def main() -> None:
    """Prints what became of types as JSON; run it in an empty folder, where objects leave files.

    `python saved_state_types_run.py PART PARTS` tries every PARTS-th type from PART on; `... FILE FILE` merges what
    such runs printed, as it is kept in `saved_state_named_types.json`.
    """
    if not sys.argv[1].isdecimal():
        outcomes = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
        print(json.dumps({key: value for key, value in merged(outcomes).items() if key not in PASSING}, indent=1))
        return
    part, parts = int(sys.argv[1]), int(sys.argv[2])
    zoo.import_everything()
    kinds = zoo.all_types()
    outcome = run(list(kinds)[part::parts], kinds)
    print(json.dumps({**vars(outcome), "versions": zoo.versions()}))


if __name__ == "__main__":
    main()
