"""The plan as a whole: idleness by cells, order of the parts, deadlines, positions and reasons."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = mutants_of(
    "core/planning/plan.py",
    (
        "keep does not hold against idleness",
        "A kept notebook is not suspended for being idle.",
        "return max(workload.idle_since + idle_s, workload.keep_until or 0.0)",
        "return workload.idle_since + idle_s",
    ),
    (
        "a running cell is idleness",
        "Idle is whose last cell has ended.",
        "workload.phase is not Phase.RUNNING or workload.executing:\n        return None\n    idle_s",
        "workload.phase is not Phase.RUNNING:\n        return None\n    idle_s",
    ),
    (
        "nobody wakes for idleness",
        "An idle notebook is suspended after idle_suspend_s, without any other event.",
        "    draft.wake_at += rests_at.values()\n",
        "",
    ),
    (
        "who is idle stays",
        "A pool may want idle notebooks suspended.",
        "for key, at in rests_at.items() if at <= state.at}",
        "for key, at in rests_at.items() if False}",
    ),
    (
        "guests leave at once",
        "Who has lost its home on paper stays while nobody needs its place.",
        "    if state.policy.queues:\n        place_guests(",
        "    if False:\n        place_guests(",
    ),
    ("nobody takes turns", "Who holds more than its request takes turns.", "    take_turns(draft)\n", ""),
    ("no wish is granted", "A user may move a notebook where there is room.", "    grant_wishes(draft)\n", ""),
    ("nobody spreads", "Bursters spread over the idle Gpus.", "moves = spread(draft)", "moves = {}"),
    (
        "who was refused memory stays where there is none",
        "Who was refused memory moves where it may use that much.",
        "    moves |= follow_wishes(draft)\n",
        "",
    ),
    (
        "there is no deadline",
        "A guarantee sets a deadline.",
        "since = draft.claimed_since(workload) if leaves else None",
        "since = None",
    ),
    (
        "who has to leave is not told",
        "Who has to leave is told so: its next cell waits.",
        "yields=workload.id in draft.yields or (leaves and workload.id not in moves),",
        "yields=workload.id in draft.yields,",
    ),
    (
        "nobody wakes for an interrupt",
        "A cell is interrupted in time, without any other event.",
        "interrupts = [state.policy.interrupt_at(deadline) for deadline in deadlines]",
        "interrupts = []",
    ),
    (
        "nobody wakes for starvation",
        "Room is reserved when the wait is over, without any other event.",
        "(*homes.wake_at, *draft.wake_at, *interrupts, *deadlines)",
        "(*draft.wake_at, *interrupts, *deadlines)",
    ),
    (
        "positions ignore priority",
        "Who waits goes by priority.",
        "turn, -workload.spec.priority, since, workload.id)",
        "turn, 0, since, workload.id)",
    ),
    (
        "positions ignore arrival",
        "Who waits goes by arrival.",
        "turn, -workload.spec.priority, since, workload.id)",
        "turn, -workload.spec.priority, 0.0, workload.id)",
    ),
    (
        "a part of a gang runs",
        "A gang that is not whole is on no Gpu.",
        "    resting |= resting_gangs(gangs, homes.homes)\n",
        "",
    ),
    (
        "who has failed keeps its home",
        "Who has failed keeps no room.",
        "if w.release_reason is None and w.phase is not Phase.FAILED]\n    homes",
        "if w.release_reason is None]\n    homes",
    ),
    (
        "a move names nobody",
        "Who moves reads for whom.",
        'return f"{state.workloads[cause].spec.name} needs {state.label(needed or workload.current)}"',
        'return f"somebody needs {state.label(needed or workload.current)}"',
    ),
    (
        "nobody is the cause of a wait",
        "Who waits is told whom for.",
        "    return _holder(draft, workload, target)\n",
        "    return None\n",
    ),
    (
        "who stays is named for one who leaves",
        "Who waits for a place is told who leaves it.",
        "return next(leaving, there[0] if there else None)",
        "return there[0] if there else None",
    ),
    (
        "caches stay",
        "Who holds more than its request gives caches back where memory is short.",
        "draft.trim_since = trims.wanted_from(state, draft.short) | trim_for_wanted(state, draft.allowances)",
        "draft.trim_since = trim_for_wanted(state, draft.allowances)",
    ),
    (
        "caches stay although an allocation failed",
        "Caches are given back for an allocation that has failed.",
        "draft.trim_since = trims.wanted_from(state, draft.short) | trim_for_wanted(state, draft.allowances)",
        "draft.trim_since = trims.wanted_from(state, draft.short)",
    ),
    (
        "who borrows does not read its home",
        "Who borrows reads where its home is.",
        "its home is {home}",
        "so be it",
    ),
    (
        "who yields is not told for whom",
        "Who is to yield reads for whom.",
        "{state.workloads[draft.yields[workload.id]].spec.name} when its cell ends",
        "another one when its cell ends",
    ),
)
