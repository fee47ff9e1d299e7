"""A better spread: who moves for burst, where to, how soon again, and what it must gain."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = mutants_of(
    "core/planning/places/spreading.py",
    (
        "keep does not hold against a spread",
        "A kept notebook is not moved for a better spread.",
        "if draft.keeps(workload) or workload.id not in draft.homes.homes:",
        "if workload.id not in draft.homes.homes:",
    ),
    (
        "a move gains nothing",
        "A move for burst alone gains at least min_gain.",
        "if gain[0] >= policy.min_gain or (gain[0] >= 0 and gain[1] >= policy.min_gain):",
        "if gain[0] > 0 or (gain[0] >= 0 and gain[1] > 0):",
    ),
    (
        "one gains what another loses",
        "A move for burst lowers nobody's smallest share.",
        "(gain[0] >= 0 and gain[1] >= policy.min_gain)",
        "(gain[1] >= policy.min_gain)",
    ),
    (
        "only the smallest share is worth a move",
        "A move that raises the sum is worth it where the smallest share stays.",
        "if gain[0] >= policy.min_gain or (gain[0] >= 0 and gain[1] >= policy.min_gain):",
        "if gain[0] >= policy.min_gain:",
    ),
    (
        "who is packed spreads",
        "With binpack nobody moves for a spread.",
        "        if rooms.pools[gpus[0]].placement is Placement.BINPACK:\n            continue\n",
        "",
    ),
    (
        "one spreads into a packed pool",
        "With binpack nobody is moved there for a spread.",
        "if uuid not in gpus and spreads and rooms.fits(workload, uuid):",
        "if uuid not in gpus and rooms.fits(workload, uuid):",
    ),
    (
        "one spreads where it does not fit",
        "A move for burst breaks no guarantee.",
        "if uuid not in gpus and spreads and rooms.fits(workload, uuid):",
        "if uuid not in gpus and spreads:",
    ),
    (
        "large ones move for burst first",
        "The fewest bytes move for burst.",
        "(-after[0], -after[1], workload.return_bytes,",
        "(-after[0], -after[1], -workload.return_bytes,",
    ),
    (
        "the earliest arrival moves for burst",
        "Among equals the latest arrival moves.",
        "workload.return_bytes, -workload.submitted_at, workload_id)",
        "workload.return_bytes, workload.submitted_at, workload_id)",
    ),
    (
        "commands move for burst",
        "Only notebooks move for burst.",
        (
            "workload.spec.kind is not Kind.NOTEBOOK or not workload.spec.may_borrow or workload.pending is not None:\n"
            "        return False\n"
            "    if workload.phase is not Phase.RUNNING or workload.executing or"
        ),
        (
            "not workload.spec.may_borrow or workload.pending is not None:\n"
            "        return False\n"
            "    if workload.phase is not Phase.RUNNING or workload.cell_since is not None or"
        ),
    ),
    (
        "running cells move for burst",
        "A move for burst waits for the end of the cell.",
        "workload.phase is not Phase.RUNNING or workload.executing or gpus",
        "workload.phase is not Phase.RUNNING or gpus",
    ),
    (
        "no calm",
        "Moves for burst alone are rare.",
        "    if cooled_at > draft.state.at:\n",
        "    if False:\n",
    ),
    (
        "the end of a cool-down wakes nobody",
        "A move that was put off happens when the pause is over.",
        "        draft.wake_at.append(cooled_at)\n",
        "",
    ),
    (
        "who was refused memory moves at once",
        "Who was refused memory moves between its cells.",
        "if workload.wished_bytes and _may_move_for_burst(",
        "if workload.wished_bytes or _may_move_for_burst(",
    ),
    (
        "no places are changed",
        "Where no single move helps, idle notebooks change places.",
        "    return singles | _exchange_idle(draft, singles)\n",
        "    return singles\n",
    ),
    (
        "who is on the way is sent elsewhere",
        "Who is on the way to a Gpu goes on.",
        "w.id not in for_whom | {*draft.bound}",
        "w.id not in for_whom",
    ),
    (
        "one moves for burst while another is on the way",
        "Nobody moves for burst while somebody is on the way to a Gpu.",
        "    if _coming(draft):\n        return {}\n",
        "",
    ),
    (
        "who comes is placed one after another",
        "Those who are on no Gpu yet are placed all at once.",
        "    if len(coming) < 2:\n",
        "    if True:\n",
    ),
)
