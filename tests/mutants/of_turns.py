"""Turns: residency, first come first served, a running cell only yields at its end."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = mutants_of(
    "core/planning/places/turns.py",
    (
        "holders that alternate never leave",
        "Who holds a Gpu together leaves one by one for a cell that starves.",
        "    if starves or not option.later:\n",
        "    if not option.later:\n",
    ),
    (
        "nothing is kept for a cell that starves",
        "Nobody gets the room that is kept for a cell that starves.",
        "        draft.rooms.kept_for[option.uuid] = waiter.id\n",
        "        pass\n",
    ),
    (
        "nobody looks again when a cell starves",
        "When a cell has waited for starvation_s, the plan is made again.",
        "    draft.wake_at.append(starves_at)\n",
        "",
    ),
    (
        "who has no cell that waits goes first",
        "Whose cell waits goes before who only wants to be back.",
        "            not _waits_actively(w),\n",
        "            _waits_actively(w),\n",
    ),
    (
        "last come, first served",
        "Who waits for burst is served in the order of arrival.",
        "            w.in_line_since,",
        "            -(w.waiting_since or 0.0),",
    ),
    (
        "without a cell one drives others out",
        "A notebook without a waiting cell never drives anybody out.",
        "elif not _waits_actively(waiter):",
        "elif False:",
    ),
    (
        "who still has a process drives others out",
        "One that still has a GPU process only takes room that is free.",
        "return waiter.active and not waiter.present",
        "return waiter.active",
    ),
    (
        "the end of a turn is not waited for",
        "A waiter gets the place when those who hold it have had their turn.",
        "    if not option.later:",
        "    if True:",
    ),
    (
        "nobody is told to yield",
        "Whose turn ends is told so: its next cell waits.",
        "draft.yields.setdefault(holder.id, waiter.id)",
        "draft.yields.get(holder.id)",
    ),
    (
        "the end of a residency wakes nobody",
        "A waiter gets the place when the residency is over, without any other event.",
        "    draft.wake_at += (at for at in residencies if at > draft.state.at)\n",
        "",
    ),
    (
        "only the end of the residency that is waited for wakes somebody",
        "Nothing that time alone changes waits for another event.",
        "for option in options for holder in option.later)",
        "for holder in option.later)",
    ),
    (
        "keep does not hold against a turn",
        "A kept notebook yields to nobody's burst.",
        "    if draft.keeps(holder):\n        return False\n",
        "",
    ),
    (
        "what is promised twice is not taken in turns",
        "Where more is promised than there is, the end of a cell is the end of a turn.",
        "on_demand = draft.rooms.pools[uuid].oversubscribe > 1.0",
        "on_demand = False",
    ),
    (
        "who computes within its request yields to a burst",
        "A running cell within its request yields to nobody's burst.",
        "return not holder.executing or holder.over_request_bytes > 0 or on_demand",
        "return True",
    ),
    (
        "no residency",
        "A holder keeps its Gpu for min_residency_s.",
        " and keeps_until(draft.state, holder) <= draft.state.at",
        "",
    ),
    (
        "a failed suspend is tried again at once for a burst",
        "None is suspended for a burst soon after a suspend of it has failed.",
        " or suspend_failed_lately(draft.state, holder)",
        "",
    ),
    (
        "a Gpu for which one has to wait is as good as one that is had at once",
        "A waiter replaces those who can leave at once before those who compute.",
        "return (len(self.later), sum(",
        "return (0, sum(",
    ),
    (
        "a command is stopped for a burst",
        "Only notebooks take turns.",
        "holder.spec.kind is not Kind.NOTEBOOK or ",
        "",
    ),
    (
        "a burst is no reason to trim",
        "Caches are given back before anybody's turn ends.",
        "draft.short.setdefault(option.uuid, waiter.waiting_since)",
        "draft.short.get(option.uuid)",
    ),
    (
        "who waits does not read its sizes",
        "Who waits for burst reads its saved state's size and its request.",
        "is more than its request of {request}",
        "is more than that",
    ),
)
