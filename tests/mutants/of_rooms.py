"""Room: what fits beside whom in the plan, what is free in fact, and what is out of service."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = mutants_of(
    "core/planning/making_room/rooms.py",
    (
        "a Gpu takes any number",
        "No Gpu takes more workloads than its pool allows.",
        "            and not self.is_full(uuid)\n",
        "",
    ),
    (
        "what is held takes no room",
        "Who comes to a Gpu fits beside what is held there.",
        "        return fits and self.fits_on_paper(workload, uuid)\n",
        "        return self.fits_on_paper(workload, uuid)\n",
    ),
    (
        "one borrows beside strangers",
        "A Gpu with a stranger is lent to nobody.",
        "or (workload.spec.may_borrow and not gpu.has_foreigners)",
        "or workload.spec.may_borrow",
    ),
    (
        "who may not burst borrows",
        "Only a burstable workload is on a Gpu that is not its home.",
        "or (workload.spec.may_borrow and not gpu.has_foreigners)",
        "or not gpu.has_foreigners",
    ),
    (
        "who is on a broken Gpu stays",
        "A broken Gpu is vacated.",
        "        if gpu is None or not gpu.healthy:\n            return False\n        return uuid",
        "        if gpu is None:\n            return False\n        return uuid",
    ),
    (
        "a pool that is off takes new ones",
        "A pool that is off takes nobody new.",
        "or (pool.enabled and pool.name in workload.spec.pools)",
        "or pool.name in workload.spec.pools",
    ),
    (
        "one borrows from any pool",
        "A workload stays within its pools.",
        "or (pool.enabled and pool.name in workload.spec.pools)",
        "or pool.enabled",
    ),
    (
        "what is promised twice is owed to all",
        "Above oversubscribe 1.0 a request is there on demand.",
        "if taken + workload.spec.request_bytes > self._state.gpus[uuid].capacity_bytes:",
        "if False:",
    ),
    (
        "a guest stays where a stranger is",
        "Who has lost its home stays only beside those who are looked after.",
        "not gpu.healthy or gpu.has_foreigners or self.is_full(uuid)",
        "not gpu.healthy or self.is_full(uuid)",
    ),
    (
        "a guest stays whoever comes",
        "Who has lost its home stays as long as nobody needs its place.",
        "return self._requests[uuid] + guest.spec.request_bytes <= gpu.capacity_bytes and self._sizes[uuid] <= room",
        "return True",
    ),
    (
        "the smallest share does not count",
        "The plan maximises the smallest share before the sum.",
        "smallest = min(smallest, share)",
        "smallest = 1.0",
    ),
    (
        "the sum before the smallest share",
        "The plan maximises the smallest share before the sum.",
        "return (-smallest, -total, uuid",
        "return (-total, -smallest, uuid",
    ),
    (
        "away from home where home is as good",
        "Among equals a workload is at home.",
        " uuid not in workload.current, uuid not in home,",
        " uuid not in workload.current,",
    ),
    (
        "pools are used in any order",
        "The first of its pools is preferred.",
        "uuid not in home, wanted, self",
        "uuid not in home, -wanted, self",
    ),
    (
        "a wish counts for nothing",
        "Where its user wishes it to be goes before all that.",
        "        if workload.wish in fitting:\n            return workload.wish\n",
        "",
    ),
    (
        "binpack spreads",
        "With binpack everybody is at home.",
        "            if self.pools[uuid].placement is Placement.BINPACK:\n",
        "            if False:\n",
    ),
    (
        "a broken Gpu is used",
        "A broken Gpu gets nothing new.",
        "if g.healthy and g.memory_used_bytes is not None and u not in stuck}",
        "if g.memory_used_bytes is not None and u not in stuck}",
    ),
    (
        "unknown memory is free memory",
        "A Gpu whose memory is not known gets nothing new.",
        "if g.healthy and g.memory_used_bytes is not None and u not in stuck}",
        "if g.healthy and u not in stuck}",
    ),
    (
        "a stuck Gpu is used",
        "A Gpu on which a process is stuck gets nothing new.",
        "if g.healthy and g.memory_used_bytes is not None and u not in stuck}",
        "if g.healthy and g.memory_used_bytes is not None}",
    ),
    (
        "memory that is not let go of is no trouble",
        "Memory not released at the deadline: the Gpu is quarantined.",
        "if any(state.at >= r.since + timeout_s for r in gpu.releasing)}",
        "if False}",
    ),
    (
        "nobody looks again for memory that is not let go of",
        "A Gpu is out of service at the very moment for which the plan asked to be woken.",
        "if any(state.at >= r.since + timeout_s for r in gpu.releasing)}",
        "if any(state.at > r.since + timeout_s for r in gpu.releasing)}",
    ),
    (
        "nobody looks again for a process that cannot be ended",
        "A Gpu is out of service at the very moment for which the plan asked to be woken.",
        "ending.order is Order.END and state.at >= ending.deadline_at:",
        "ending.order is Order.END and state.at > ending.deadline_at:",
    ),
    (
        "a process that cannot be ended is no trouble",
        "A Gpu whose process cannot be ended gets nothing new.",
        "            stuck.update(workload.current)\n",
        "            pass\n",
    ),
    (
        "one comes to borrow where a stranger has just been seen",
        "Who borrows starts only where no process is seen that nobody placed.",
        "if not is_usable(state, gpu) or borrows_beside_a_stranger(workload, gpu):",
        "if not is_usable(state, gpu):",
    ),
    (
        "nobody comes home where a stranger has just been seen",
        "A home is there beside a stranger, as far as there is room.",
        "return bool(gpu.unplaced) and gpu.uuid not in workload.home",
        "return bool(gpu.unplaced)",
    ),
    (
        "what is being released is free in fact",
        "What is being released counts as taken until the driver shows it free.",
        "taken = gpu.foreign_bytes + sum(r.bytes for r in gpu.releasing)",
        "taken = gpu.foreign_bytes",
    ),
    (
        "strangers take nothing in fact",
        "What strangers use is not free.",
        "taken = gpu.foreign_bytes + sum(r.bytes for r in gpu.releasing)",
        "taken = sum(r.bytes for r in gpu.releasing)",
    ),
    (
        "what others use is free in fact",
        "What others hold is not free.",
        "taken += max(other.size_bytes, other.used_bytes(gpu.uuid))",
        "taken += other.spec.request_bytes",
    ),
    (
        "one starts where its request fits, whatever it brings",
        "Who comes back needs room for all that it brings.",
        "room_bytes(state, workload, gpu) >= workload.return_bytes",
        "room_bytes(state, workload, gpu) >= workload.spec.request_bytes",
    ),
    (
        "who moves takes what it holds elsewhere too",
        "Elsewhere a workload counts with what it needs to come back.",
        "return workload.size_bytes if stays else workload.return_bytes",
        "return workload.size_bytes",
    ),
    (
        "a full Gpu is too full",
        "Requests may fill a Gpu exactly.",
        "return self._requests[uuid] > self._capacity[uuid]",
        "return self._requests[uuid] >= self._capacity[uuid]",
    ),
    (
        "what is held never exceeds",
        "Where what is held does not fit beside the requests, the bursters yield.",
        "return self._sizes[uuid] > self._capacity[uuid]",
        "return False",
    ),
)
