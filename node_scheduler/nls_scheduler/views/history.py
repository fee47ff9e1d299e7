"""What happened, one entry for each thing that a person would call an event, kept in memory and streamed."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import replace
from itertools import chain
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model import events
from nls_scheduler.core.model.commands import InterruptCell
from nls_scheduler.core.model.reasons import NOTHING, Reason, Why, said
from nls_scheduler.core.model.workload import Order, Phase
from nls_scheduler.core.planning.making_room.rooms import out_of_service
from nls_scheduler.core.recording.of_a_report import as_if_heard
from nls_scheduler.core.recording.of_a_workload import departure_of
from nls_scheduler.core.recording.of_an_end import told_to_end
from nls_scheduler.units.clock import wall_time
from nls_scheduler.views.entries import Entry, labels_of, of_gpu

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.reasons import Mention
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Departure, Pending, Workload

ENTRIES_KEPT: Final = 2000
BACKLOG_LIMIT: Final = 1000
_CAME_OR_LEFT: Final = frozenset({"started", "resumed", "adopted", "moved", "suspended"})
_ON_GPU: Final = frozenset({Phase.STARTING, Phase.RUNNING, Phase.SUSPENDING})


class Recorder:
    """Derives the entries from the state before and after each step. Called by the daemon's loop only.

    What it knows besides follows from the entries that there are: whose departure has one of its own, "suspended",
    where otherwise one "moved" will tell it all, and which interrupts nobody has answered.
    """

    def __init__(self) -> None:
        self._told: set[WorkloadId] = set()
        self._interrupts: dict[WorkloadId, Pending] = {}
        self._sequence = 0
        self._at = 0.0

    def go_on_after(self, entries: Sequence[Entry], state: NodeState) -> None:
        """From what an earlier daemon has kept, and the state in which it was."""
        self._sequence = max((entry.sequence for entry in entries), default=0)
        came_or_left = {entry.about.id: entry.event for entry in entries if entry.event in _CAME_OR_LEFT}
        interrupted_at = {entry.about.id: entry.at for entry in entries if entry.event == "interrupted"}
        for key, workload in state.workloads.items():
            # Where no entry is left that would say so, it was told long ago.
            if workload.departure is not None and came_or_left.get(key, "suspended") == "suspended":
                self._told.add(key)
            interrupt = workload.interrupt
            if interrupt is not None and interrupted_at.get(key, -inf) < interrupt.issued_at:
                self._interrupts[key] = interrupt

    def entries(
        self, before: NodeState, event: events.Event, after: NodeState, commands: Sequence[Command]
    ) -> list[Entry]:
        """What a person would say has just happened; often nothing."""
        self._at = after.at
        if isinstance(event, events.WorkloadReported):
            event = as_if_heard(event, before)
        found = self._changes(before, event, after)
        for command in commands:
            if (
                isinstance(command, InterruptCell)
                and (order := after.workloads[command.workload].interrupt) is not None
            ):
                self._interrupts[command.workload] = order
        for ended in before.workloads.keys() - after.workloads.keys():
            self._told.discard(ended)
            self._interrupts.pop(ended, None)
        return found

    def _of_gpus(self, before: NodeState, event: events.Event, after: NodeState) -> Iterator[Entry]:
        """Gpus that went out of service or came back."""
        out_before, out = out_of_service(before), out_of_service(after)
        for uuid in {**before.gpus, **after.gpus}:
            was, now, why_before = before.gpus.get(uuid), after.gpus.get(uuid), out_before.get(uuid)
            if now is None:
                if was is not None and why_before is None and isinstance(event, events.GpusDiscovered):
                    yield self._gpu_entry(after, was, "gpu_unhealthy", Why(event.why_gone(uuid)))
                continue
            why = out.get(uuid)
            if why is not None and why_before is None:
                yield self._gpu_entry(after, now, "gpu_unhealthy", why)
            elif why is None and why_before is not None:
                yield self._gpu_entry(after, now, "gpu_healthy", Why(Reason.BACK_IN_SERVICE, because=(why_before,)))

    def _gpu_entry(self, state: NodeState, gpu: Gpu, event: str, why: Why) -> Entry:
        return self._numbered(state, of_gpu(gpu.label), event, why)

    def _numbered(self, state: NodeState, about: Mention, event: str, why: Why) -> Entry:
        """It happens now, whichever state knows best about it."""
        self._sequence += 1
        return Entry(self._sequence, self._at, wall_time(self._at), about, event, why, labels_of(why, state))

    def _changes(self, before: NodeState, event: events.Event, after: NodeState) -> list[Entry]:
        found = list(self._of_gpus(before, event, after))
        about = getattr(event, "workload", None)
        for workload_id in {**before.workloads, **after.workloads}:
            was, now = before.workloads.get(workload_id), after.workloads.get(workload_id)
            untold = was is not None and was.departure is not None and workload_id not in self._told
            if was is now and workload_id != about and not untold:
                continue
            if was is None:
                found += [] if now is None else self._new(event, after, now)
                continue
            if workload_id == about:
                found += self._interrupted(before, event, was)
            found += self._left(before, was, event, now)
            if now is None:
                found += self._gone(before, was, event)
            elif was.frozen is not None and now.phase is Phase.RUNNING:
                found.append(self._thawed(after, was, now))
            elif was.phase is Phase.STARTING and (now.phase is Phase.RUNNING or _is_there_and_must_go(event, now)):
                found += (_with_losses(entry, event) for entry in self._arrived(before, was, after, now))
            elif isinstance(event, events.WorkloadReported) and workload_id == about and _was_found_there(was, now):
                self._told.discard(workload_id)
                found.append(self._adopted(after, now))
            elif isinstance(event, events.VariablesLost) and workload_id == about:
                found.append(_with_losses(self._entry(after, now, "lost", said(event.reason)), event))
            elif now.phase is Phase.FAILED and was.phase is not Phase.FAILED:
                found.append(self._entry(after, now, "failed", _plan_reason(after, now)))
            else:
                found += self._stranded(after, now)
        return found

    def _new(self, event: events.Event, after: NodeState, now: Workload) -> Iterator[Entry]:
        """A workload that nobody knew."""
        if now.phase is Phase.QUEUED:
            yield self._entry(after, now, "queued", _plan_reason(after, now))
        elif isinstance(event, events.WorkloadAdopted):
            yield self._adopted(after, now)

    def _adopted(self, after: NodeState, now: Workload) -> Entry:
        return self._entry(after, now, "adopted", Why(Reason.ADOPTED), to=now.current)

    def _interrupted(self, state: NodeState, event: events.Event, workload: Workload) -> Iterator[Entry]:
        """A cell that was told to end, once somebody says that it was: its end may have been heard before."""
        order = self._interrupts.get(workload.id)
        if isinstance(event, events.CellInterrupted) and order is not None and event.command_id == order.command_id:
            del self._interrupts[workload.id]
            if event.reached:
                entry = self._entry(state, workload, "interrupted", order.reason, left=workload.current)
                yield replace(entry, cause=order.cause)

    def _left(self, before: NodeState, was: Workload, event: events.Event, now: Workload | None) -> Iterator[Entry]:
        if isinstance(event, events.SuspendFailed) and event.workload == was.id and was.phase is Phase.SUSPENDING:
            yield self._entry(before, was, "suspend_failed", said(event.reason))
        elif now is not None and _was_given_up(was, now):
            yield self._entry(before, was, "suspend_failed", now.suspend_trouble or NOTHING)
        if (standing := self._of_standing(before, was, event, now)) is not None:
            yield from standing
            return
        if was.phase not in _ON_GPU or (now is not None and not _has_left(was, now)):
            return
        self._interrupts.pop(was.id, None)
        if was.departure is not None and was.id not in self._told:
            # It never came to where it was sent: before this, it was suspended.
            yield self._tell_suspended(before, was, was.departure)
        pending, since = was.pending, was.pending.issued_at if was.pending else None
        seconds = None if since is None else event.at - since
        if isinstance(event, events.ProcessSuspended):
            self._told.discard(was.id)
            if now is None:
                yield self._tell_suspended(before, was, departure_of(was, event))
        elif isinstance(event, events.StartFailed):
            yield self._entry(before, was, "start_failed", said(event.reason), left=was.current, seconds=seconds)
        elif told_to_end(was) and pending is not None and was.release_reason is None:
            entry = self._entry(before, was, "evicted", pending.reason, left=was.current, seconds=seconds)
            yield replace(entry, cause=pending.cause)
        elif isinstance(event, events.ProcessExited):
            yield self._entry(before, was, "exited", said(event.reason), left=was.current)

    def _of_standing(
        self, before: NodeState, was: Workload, event: events.Event, now: Workload | None
    ) -> list[Entry] | None:
        """A cell that begins to stand still, or does not, or ends doing so; `None`: the event is about none."""
        still = None if now is None else now.frozen
        if isinstance(event, events.FreezeFailed | events.ThawFailed) and event.workload == was.id:
            failed = "freeze_failed" if isinstance(event, events.FreezeFailed) else "thaw_failed"
            return [] if was.pending is None else [self._entry(before, was, failed, said(event.reason))]
        if was.frozen is None and still is not None:
            entry = self._entry(before, was, "frozen", still.why, left=still.gpus)
            return [replace(entry, bytes=still.bytes, cause=None if was.pending is None else was.pending.cause)]
        if was.frozen is not None and still is None and isinstance(event, events.ProcessExited):
            return [self._entry(before, was, "exited", said(event.reason), left=was.frozen.gpus)]
        return None

    def _thawed(self, after: NodeState, was: Workload, now: Workload) -> Entry:
        """Its cell goes on; how long it stood still."""
        since = after.at if was.frozen is None else was.frozen.since
        entry = self._entry(after, now, "thawed", now.last_reason, to=now.current, seconds=after.at - since)
        return entry if was.frozen is None else replace(entry, bytes=was.frozen.bytes)

    def _gone(self, before: NodeState, was: Workload, event: events.Event) -> Iterator[Entry]:
        """A record that ends; a command's ends with its process, which has told it all."""
        if was.release_reason is not None or not isinstance(event, events.ProcessExited | events.StartFailed):
            told = said(event.reason) if isinstance(event, events.SupervisorLost | events.WorkloadReleased) else NOTHING
            why = was.release_reason or told or was.last_reason or Why(Reason.ENDED_UNSEEN)
            yield self._entry(before, was, "released", why)

    def _stranded(self, after: NodeState, now: Workload) -> Iterator[Entry]:
        """A suspended workload that nothing brings to another Gpu at once: the suspend is a story of its own."""
        left, entry = now.departure, after.plan.get(now.id)
        goes_on = entry is not None and entry.target
        if left is not None and now.id not in self._told and now.phase is Phase.SUSPENDED and not goes_on:
            yield self._tell_suspended(after, now, left)

    def _tell_suspended(self, state: NodeState, workload: Workload, left: Departure) -> Entry:
        self._told.add(workload.id)
        order, seconds = left.order, left.at - left.order.issued_at
        entry = self._entry(state, workload, "suspended", order.reason, left=left.gpus, seconds=seconds)
        return replace(entry, bytes=left.bytes, cause=order.cause)

    def _arrived(self, before: NodeState, was: Workload, after: NodeState, now: Workload) -> Iterator[Entry]:
        left, untold = was.departure, was.id not in self._told
        if left is not None and untold and left.gpus != now.current:
            order, seconds = left.order, after.at - left.order.issued_at
            entry = self._entry(after, now, "moved", order.reason, left=left.gpus, to=now.current, seconds=seconds)
            yield replace(entry, bytes=left.bytes, cause=order.cause)
            return
        if left is not None and untold:
            yield self._tell_suspended(after, now, left)
        self._told.discard(was.id)
        began_at = was.pending.issued_at if was.pending else before.at
        if left is None and was.saved_bytes is None:
            began_at = min(began_at, was.waiting_since or began_at)
        event = "started" if left is None and was.saved_bytes is None else "resumed"
        why = was.pending.reason if was.pending else now.last_reason
        entry = self._entry(after, now, event, why, to=now.current, seconds=after.at - began_at)
        yield replace(entry, bytes=left.bytes if left is not None else now.saved_bytes)

    def _entry(
        self,
        state: NodeState,
        workload: Workload,
        event: str,
        why: Why,
        *,
        left: tuple[GpuUuid, ...] = (),
        to: tuple[GpuUuid, ...] = (),
        seconds: float | None = None,
    ) -> Entry:
        entry = state.plan.get(workload.id)
        return replace(
            self._numbered(state, workload.mention, event, why),
            cause=state.mention(None if entry is None else entry.cause),
            left=state.label(left) or None,
            to=state.label(to) or None,
            seconds=None if seconds is None else round(seconds, 3),
        )


class History:
    """The last entries, and everybody who follows them.

    Whoever has the most of them loses the oldest first: one user's thousand commands leave what others are to be told.
    """

    def __init__(self) -> None:
        self._of_users: defaultdict[tuple[int, str], deque[Entry]] = defaultdict(deque)
        self._kept = 0
        self._followers: dict[asyncio.Queue[Entry | None], Hashable] = {}
        self._passive: set[asyncio.Queue[Entry | None]] = set()

    def add(self, entry: Entry) -> None:
        """Keep `entry` and hand it to the followers; one that lags `BACKLOG_LIMIT` behind is let go."""
        self._keep(entry)
        for queue in tuple(self._followers):
            if queue.qsize() >= BACKLOG_LIMIT:
                self.unfollow(queue)
            else:
                queue.put_nowait(entry)

    def entries(self) -> list[Entry]:
        """The last entries, oldest first."""
        return sorted(chain.from_iterable(self._of_users.values()), key=attrgetter("sequence"))

    def restore(self, entries: Iterable[Entry]) -> None:
        """What an earlier daemon kept."""
        for entry in entries:
            self._keep(entry)

    def _keep(self, entry: Entry) -> None:
        self._of_users[entry.about.owner, entry.about.tenant].append(entry)
        self._kept += 1
        if self._kept > ENTRIES_KEPT:
            most = max(self._of_users, key=lambda user: len(self._of_users[user]))
            self._of_users[most].popleft()
            self._kept -= 1
            if not self._of_users[most]:
                del self._of_users[most]

    def follow(self, *, passive: bool = False, user: Hashable = None) -> asyncio.Queue[Entry | None]:
        """A queue of the entries from now on; `None` ends it. A `passive` follower is not counted by `followed`."""
        queue: asyncio.Queue[Entry | None] = asyncio.Queue()
        self._followers[queue] = user
        if passive:
            self._passive.add(queue)
        return queue

    def unfollow(self, queue: asyncio.Queue[Entry | None]) -> None:
        """End `queue`. Idempotent."""
        if queue in self._followers:
            del self._followers[queue]
            self._passive.discard(queue)
            queue.put_nowait(None)

    @property
    def followed(self) -> bool:
        """Whether anybody follows for whom the daemon should stay."""
        return bool(self._followers.keys() - self._passive)

    def followed_by(self, user: Hashable) -> int:
        """How many followers are this user's."""
        return sum(whose == user for whose in self._followers.values())

    def close(self) -> None:
        """End all queues."""
        for queue in tuple(self._followers):
            self.unfollow(queue)


def _with_losses(entry: Entry, event: events.Event) -> Entry:
    if not isinstance(event, events.ProcessReady | events.VariablesLost):
        return entry
    return replace(entry, missing=event.missing, lost_cells=event.lost_cells)


def _was_given_up(was: Workload, now: Workload) -> bool:
    """Whether nobody has answered its suspend in time. One that a daemon has missed has not failed."""
    suspend = was.pending is not None and was.pending.order is Order.SUSPEND
    return suspend and now.phase is Phase.RUNNING and now.suspend_failed_at != was.suspend_failed_at


def _is_there_and_must_go(event: events.Event, now: Workload) -> bool:
    """Whether it has come to its Gpu and is on its way from there already, maybe by an order that nobody remembers."""
    if not isinstance(event, events.ProcessReady | events.WorkloadReported) or event.workload != now.id:
        return False
    goes = isinstance(event, events.ProcessReady) or event.doing == Order.SUSPEND.value
    return goes and now.phase is Phase.SUSPENDING


def _was_found_there(was: Workload, now: Workload) -> bool:
    """Whether it came to where it is by orders of which a journal has lost every word: its report alone tells it."""
    if now.phase not in (Phase.RUNNING, Phase.SUSPENDING):
        return False
    is_another = (was.current, was.process) != (now.current, now.process)
    return is_another or was.phase not in (Phase.RUNNING, now.phase)


def _has_left(was: Workload, now: Workload) -> bool:
    if now.phase not in _ON_GPU:
        return True
    if now.phase is not Phase.STARTING:
        return False
    started_anew = was.pending is None or now.pending is None or was.pending.command_id != now.pending.command_id
    return was.phase is not Phase.STARTING or started_anew


def _plan_reason(state: NodeState, workload: Workload) -> Why:
    entry = state.plan.get(workload.id)
    return entry.reason if entry is not None else workload.last_reason
