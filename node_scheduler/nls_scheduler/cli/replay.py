"""`nls replay`: the journal's decisions again, step by step."""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.output import say, tell
from nls_scheduler.units.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.cli.types import Subparsers
    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.state import NodeState

_EPILOG = """examples:
  nls replay /var/lib/nls/journal.db                every step: the fact, what changed, what was ordered, and why
  nls replay journal.db --workload alice.ipynb      only the steps in which alice.ipynb changed
  nls replay journal.db --since 10min               only the last ten minutes
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
    parser.add_argument(
        "--since",
        metavar="WHEN",
        type=_moment,
        help="only steps from a time on (2026-03-14T09:26, in UTC), or as long before the last one (10min, 2h)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per step")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from nls_scheduler.core.step import step
    from nls_scheduler.daemon.journal_steps import read_steps
    from nls_scheduler.daemon.journal_tables import JournalError

    state: NodeState | None = None
    steps = shown = differences = 0
    try:
        for snapshot, event, journalled, wall in read_steps(options.journal, _since(options), options.workload):
            if snapshot is not None:
                # A daemon began here, or the journal was cut: the snapshot is the truth.
                state = snapshot
            if state is None:
                continue
            before = state
            state, commands = step(before, event)
            if journalled is None:
                continue  # it only leads to what is shown
            steps += 1
            as_then = commands == journalled or _as_told(commands, state) == _as_told(journalled, state)
            differences += not as_then
            shown += _show(options, before, event, state, commands, None if as_then else journalled, wall)
    except JournalError as error:
        tell(str(error))
        return exit_codes.USAGE
    if options.workload is not None and not shown:
        since = "" if options.since is None else " since then"
        tell(f"No step of {options.journal}{since} changed a workload {options.workload!r}.")
        return exit_codes.USAGE
    if not options.json:
        same = "all decided as they were then" if not differences else f"{differences} decided otherwise today"
        say(f"{steps} steps, {same}.")
    return 0


def _since(options: argparse.Namespace) -> float | None:
    """The wall time from which on steps are shown. Raises JournalError."""
    from nls_scheduler.daemon.journal_steps import last_step_at

    if options.since is None:
        return None
    if isinstance(options.since, datetime):
        return options.since.timestamp()
    return last_step_at(options.journal) - float(options.since)


def _moment(text: str) -> datetime | float:
    """A time as it is shown, in UTC if it says nothing else, or seconds before the last step."""
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    try:
        return parse_duration(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a duration, as 10min, nor a time, as 2026-03-14T09:26 (in UTC)"
        ) from None


def _show(
    options: argparse.Namespace,
    before: NodeState,
    event: Event,
    after: NodeState,
    commands: tuple[Command, ...],
    then: tuple[Command, ...] | None,
    wall: float,
) -> bool:
    """Whether there was anything to show. `then`: what was decided, where it differs."""
    from nls_scheduler.core.model.codec import encode

    changed = _changed(before, after, options.workload)
    if options.workload is not None and not changed:
        return False
    moment = datetime.fromtimestamp(wall, tz=UTC).isoformat(timespec="milliseconds")
    if options.json:
        facts = {"time": moment, "event": encode(event), "changed": changed, "commands": _as_told(commands, after)}
        say(json.dumps({**facts, "as_then": then is None, "then": None if then is None else _as_told(then, after)}))
        return True
    say(f"{moment}  {''.join(_in_words((event,), after))}")
    for change in changed:
        say(f"    {change['name']}: {change['before']} -> {change['after']}  ({change['reason']})")
    for command in _in_words(commands, after):
        say(f"    => {command}")
    if then is not None:
        say(f"    !! then: {', '.join(_in_words(then, after)) or 'nothing'}")
    return True


def _changed(before: NodeState, after: NodeState, only: str | None) -> list[dict[str, Any]]:
    """The workloads that are elsewhere, or are to go elsewhere, or for another reason."""
    from nls_scheduler.views.sentences import Names, sentence

    changes = []
    for key in sorted({*before.workloads, *after.workloads}):
        was, now = before.workloads.get(key), after.workloads.get(key)
        planned, entry = before.plan.get(key), after.plan.get(key)
        if was is now and planned == entry:
            continue  # as most are, in most steps
        name = (now or was).spec.name if (now or was) else key  # type: ignore[union-attr]  # one of them is there
        if only is not None and only not in (key, name):
            continue
        then, today = _place(before, key), _place(after, key)
        if then != today or (planned is not None and entry != planned):
            reason = sentence(entry.reason, Names.of(after)) if entry else ""
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


def _as_told(commands: tuple[Command, ...], state: NodeState) -> list[dict[str, Any]]:
    """As JSON, with sentences for reasons: a journal of an earlier version has nothing else."""
    from nls_scheduler.core.model.codec import encode

    reasons = [getattr(command, "reason", None) for command in commands]
    told = [{} if reason is None else {"reason": _plain(reason, state)} for reason in reasons]
    return [encode(command) | reason for command, reason in zip(commands, told, strict=True)]


def _in_words(values: tuple[Event | Command, ...], state: NodeState) -> list[str]:
    """The types and the telling fields: what a person looks for."""
    return [f"{type(value).__name__}({', '.join(_parts(value, state))})" for value in values]


def _parts(value: Event | Command, state: NodeState) -> Iterator[str]:
    for name in ("workload", "command_id", "reason", "cause", "gpus", "saved_bytes", "process"):
        content = getattr(value, name, None)
        if content is not None and not (name == "gpus" and not all(isinstance(g, str) for g in content)):
            yield f"{name}={content if isinstance(content, str | int) else _plain(content, state)}"


def _plain(content: Any, state: NodeState) -> str:
    from nls_scheduler.core.model.reasons import Why
    from nls_scheduler.views.sentences import Names, sentence

    if isinstance(content, Why):
        return sentence(content, Names.of(state))
    if isinstance(content, tuple):
        return "+".join(map(str, content))
    return str(getattr(content, "pid", content))
