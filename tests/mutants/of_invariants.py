"""The sentences that hold after every step: each says so where it is broken."""

from __future__ import annotations

from mutants import mutants_of

_SAYS = "What is broken is said."
MUTANTS = mutants_of(
    "core/invariants.py",
    ("no sentence is broken", _SAYS, "    if broken:\n", "    if False:\n"),
    ("requests now", "Requests now on a Gpu never exceed it.", "if now > gpu.memory_total_bytes:", "if False:"),
    (
        "requests at home",
        "Requests at home on a Gpu stay within the bound.",
        "if gpu.healthy and home > gpu.memory_total_bytes *",
        "if False and home > gpu.memory_total_bytes *",
    ),
    ("phase and Gpu", "A phase says whether there is a Gpu.", "if has_gpu != bool(workload.current):", "if False:"),
    (
        "phase and process",
        "Without a Gpu there is no process and no order.",
        "if not has_gpu and (workload.process is not None or workload.pending is not None):",
        "if False:",
    ),
    (
        "running",
        "Who runs has a process, and no order pending.",
        "if workload.phase is Phase.RUNNING and (workload.process is None or workload.pending is not None):",
        "if False:",
    ),
    (
        "starting",
        "Who starts was ordered to.",
        "if workload.phase is Phase.STARTING and not _pending_is(workload, Order.START):",
        "if False:",
    ),
    (
        "suspending",
        "Who is on the way out was ordered to.",
        "if workload.phase is Phase.SUSPENDING and not _pending_is(workload, Order.SUSPEND, Order.STOP, Order.END):",
        "if False:",
    ),
    ("waiting", "Since when one waits is known.", "if waits and workload.waiting_since is None:", "if False:"),
    (
        "reasons",
        "Every entry of the plan has a reason.",
        "if not entry.reason and workload.release_reason is None:",
        "if False:",
    ),
    ("admission", "Who is to run is admitted.", "if entry.target and not entry.home and not stays:", "if False:"),
    (
        "borrowing",
        "Who may not borrow runs at home.",
        "if entry.target and entry.target != entry.home and not workload.spec.may_borrow and not workload.present:",
        "if False:",
    ),
    (
        "allowance",
        "An allowance is within request and limit.",
        "if entry.target and not workload.spec.request_bytes <= entry.allowance_bytes <= workload.spec.limit_bytes:",
        "if False:",
    ),
    ("planned requests", "A plan fits.", "if planned > gpu.memory_total_bytes:", "if False:"),
    (
        "queues",
        "Nobody is admitted beyond a limit.",
        "if limit is not None and used > limit + TOLERANCE:",
        "if limit is not None and used > limit + 100:",
    ),
    (
        "room in fact",
        "No process starts before there is room.",
        "if taken > gpu.memory_total_bytes:",
        "if False:",
    ),
    (
        "ids",
        "Orders have consecutive ids.",
        "if ids != list(range(before.next_command, before.next_command + len(ids))):",
        "if False:",
    ),
    ("one order each", "One order each in one step.", "if len(set(targets)) != len(targets):", "if False:"),
    ("orders' reasons", "Every order has a reason.", "if not command.reason:", "if False:"),
    (
        "pending",
        "An order that was given is pending.",
        "if pending is None or pending.command_id != command.command_id:",
        "if False:",
    ),
    (
        "keep",
        "Only a guarantee suspends who is kept.",
        "if isinstance(command, SuspendProcess) and workload.kept(state.at) and not asked:",
        "if False:",
    ),
    (
        "interrupts",
        "A cell is interrupted for a guarantee, once.",
        "if isinstance(command, InterruptCell) and (entry.deadline_at is None or was.interrupt is not None):",
        "if False:",
    ),
    (
        "mid-cell",
        "Nobody is suspended in mid-cell.",
        "    if isinstance(command, SuspendProcess):\n        yield",
        "    if False:\n        yield",
    ),
    (
        "stops",
        "A running cell is stopped at a deadline only.",
        "if isinstance(command, StopProcess) and not due:",
        "if False:",
    ),
    (
        "allowances",
        "Everybody may use what they are allowed to at the same time.",
        "if sum(entry.allowance_bytes for entry in there) > max(requests, gpu.capacity_bytes):",
        "if False:",
    ),
    ("trims", "A trim has a cause.", "if since is None or workload.over_request_bytes <= 0:", "if False:"),
    (
        "trims again",
        "One cause trims once.",
        "elif was.trimmed_at is not None and was.trimmed_at >= since:",
        "elif False:",
    ),
    (
        "moves per hour",
        "Moves for burst alone are bounded.",
        "if workload.burst_moves != was.burst_moves and len(recent) > max(1, state.policy.max_moves_per_hour):",
        "if False:",
    ),
    (
        "planned gangs",
        "A gang is planned whole.",
        "if any(targets) and not (all(targets) and gang.whole):",
        "if False:",
    ),
    (
        "admitted gangs",
        "A gang is admitted whole.",
        "if any(w.home for w in absent) and not (gang.whole and all(w.home for w in gang.members)):",
        "if False:",
    ),
    (
        "started gangs",
        "A gang is started whole.",
        "if started & {w.id for w in gang.members} and any(w.phase is not Phase.STARTING for w in gang.members):",
        "if False:",
    ),
    ("one Gpu twice", "Nobody has one Gpu twice.", "if len(set(gpus)) != len(gpus):", "if False:"),
    (
        "how many Gpus",
        "Nobody starts on fewer Gpus than it asks for, nor more.",
        "if target and not workload.present and not spec.gpu_count <= len(target) <= elastic_counts.most(spec):",
        "if False:",
    ),
    (
        "slices",
        "One of several Gpus is never a slice.",
        "if len(target) > 1 and any(",
        "if False and any(",
    ),
    (
        "deadlines",
        "Only a guarantee sets a deadline.",
        "        if not pressed and not any(claims):\n",
        "        if False:\n",
    ),
)
