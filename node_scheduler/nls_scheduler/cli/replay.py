"""`nls replay`: the journal's decisions again, step by step."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.output import say, tell

if TYPE_CHECKING:
    from nls_scheduler.cli.types import Subparsers
    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.state import NodeState

_EPILOG = """examples:
  nls replay /run/nls/journal.db                    every step: the fact, what changed, what was ordered, and why
  nls replay journal.db --workload alice.ipynb      only the steps in which alice.ipynb changed
  nls replay journal.db --json | jq .commands
"""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "replay",
        help="show a journal's decisions again, step by step",
        description="Reads a journal (also of a daemon that runs, also of another machine) and decides again: for each "
        "fact the state before and after, the plan's reasons and the commands. Changes nothing.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument(
        "journal", type=Path, metavar="JOURNAL", help="the file journal.db in the daemon's state folder"
    )
    parser.add_argument("--workload", metavar="NAME", help="only steps that changed this workload (name or id)")
    parser.add_argument("--json", action="store_true", help="one JSON object per step")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from nls_scheduler.core.step import step
    from nls_scheduler.daemon.journal import JournalError, read_events

    state: NodeState | None = None
    steps = differences = 0
    try:
        for snapshot, event, journalled, wall in read_events(options.journal):
            if snapshot is not None:
                # A daemon began here, or the journal was cut: the snapshot is the truth.
                state = snapshot
            if state is None:
                continue
            before = state
            state, commands = step(before, event)
            steps += 1
            differences += commands != journalled
            _show(options, before, event, state, commands, journalled, wall)
    except JournalError as error:
        tell(str(error))
        return exit_codes.USAGE
    if not options.json:
        same = "all decided as they were then" if not differences else f"{differences} decided otherwise today"
        say(f"{steps} steps, {same}.")
    return 0


def _show(
    options: argparse.Namespace,
    before: NodeState,
    event: Event,
    after: NodeState,
    commands: tuple[Command, ...],
    journalled: tuple[Command, ...],
    wall: float,
) -> None:
    from nls_scheduler.core.model.codec import encode

    changed = _changed(before, after, options.workload)
    if options.workload is not None and not changed:
        return
    moment = datetime.fromtimestamp(wall, tz=UTC).isoformat(timespec="milliseconds")
    if options.json:
        as_then = commands == journalled
        facts = {"time": moment, "event": encode(event), "changed": changed, "commands": encode(commands)}
        say(json.dumps({**facts, "as_then": as_then, "then": None if as_then else encode(journalled)}))
        return
    say(f"{moment}  {_in_words(event)}")
    for change in changed:
        say(f"    {change['name']}: {change['before']} -> {change['after']}  ({change['reason']})")
    for command in commands:
        say(f"    => {_in_words(command)}")
    if commands != journalled:
        say(f"    !! then: {', '.join(map(_in_words, journalled)) or 'nothing'}")


def _changed(before: NodeState, after: NodeState, only: str | None) -> list[dict[str, Any]]:
    """The workloads that are elsewhere, or are to go elsewhere, or for another reason."""
    changes = []
    for key in sorted({*before.workloads, *after.workloads}):
        was, now = before.workloads.get(key), after.workloads.get(key)
        name = (now or was).spec.name if (now or was) else key  # type: ignore[union-attr]  # one of them is there
        if only is not None and only not in (key, name):
            continue
        then, today = _place(before, key), _place(after, key)
        entry = after.plan.get(key)
        reason = entry.reason if entry else ""
        if then != today or (key in before.plan and entry != replace(before.plan[key])):
            changes.append({"id": key, "name": name, "before": then, "after": today, "reason": reason})
    return changes


def _place(state: NodeState, key: Any) -> str:
    workload = state.workloads.get(key)
    if workload is None:
        return "absent"
    where = f" on {state.label(workload.current)}" if workload.current else ""
    entry = state.plan.get(key)
    heading = f", to {state.label(entry.target)}" if entry and entry.target and entry.target != workload.current else ""
    return f"{workload.phase}{where}{heading}"


def _in_words(value: Event | Command) -> str:
    """The type and the telling fields: what a person looks for."""
    telling = ("workload", "command_id", "reason", "cause", "gpus", "saved_bytes", "process")
    parts = []
    for name in telling:
        content = getattr(value, name, None)
        if content is not None and not (name == "gpus" and not all(isinstance(g, str) for g in content)):
            parts.append(f"{name}={content if isinstance(content, str | int) else _plain(content)}")
    return f"{type(value).__name__}({', '.join(parts)})"


def _plain(content: Any) -> str:
    if isinstance(content, tuple):
        return "+".join(map(str, content))
    return str(getattr(content, "pid", content))
