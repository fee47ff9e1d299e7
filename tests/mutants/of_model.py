"""What a workload counts with, what may be moved, capacities and times; pools; legal transitions."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = [
    *mutants_of(
        "core/model/workload.py",
        (
            "a member of several Gpus is moved",
            "Multi-GPU workloads and gangs are whole or not at all, never moved for burst.",
            "single = self.gpu_count == 1 and not self.elastic and self.gang is None",
            "single = True",
        ),
        (
            "every command is moved",
            "A command is immovable unless it may start again.",
            "return single and (self.kind is Kind.NOTEBOOK or self.requeue)",
            "return single",
        ),
        (
            "an elastic command that cannot start again is resized",
            "An elastic command that cannot start again keeps what it got.",
            "return self.elastic and self.requeue",
            "return self.elastic",
        ),
        (
            "who has no limit above its request borrows",
            "Only burstable workloads are on a Gpu that is not their home.",
            "return self.burstable and self.movable",
            "return self.movable",
        ),
        (
            "everything is preemptible",
            "From priority 100 on a workload is not preemptible.",
            "return self.priority < FIRM_FROM",
            "return True",
        ),
        (
            "commands take turns",
            "Only notebooks take turns where more is promised than there is.",
            "return self.kind is Kind.NOTEBOOK and self.movable",
            "return self.movable",
        ),
        (
            "who comes back needs its request alone",
            "Who comes back needs its request, or its saved state where that is more.",
            "return max(self.spec.request_bytes, saved, unsaved)",
            "return max(self.spec.request_bytes, unsaved)",
        ),
        (
            "the context takes no room",
            "Requests and limits include the CUDA context.",
            "saved = 0 if self.saved_bytes is None else self.saved_bytes + self.context_bytes",
            "saved = 0 if self.saved_bytes is None else self.saved_bytes",
        ),
        (
            "what is not saved weighs nothing",
            "What a cell has changed counts with what it uses.",
            "return max(self.spec.request_bytes, saved, unsaved)",
            "return max(self.spec.request_bytes, saved)",
        ),
        (
            "who runs takes its request alone",
            "Who runs counts with what it holds where that is more than its request.",
            "                largest = max(largest, used)\n",
            "                largest = max(largest, 0)\n",
        ),
        (
            "a request may be nothing",
            "A request is above zero and at most the limit.",
            "if not 0 < self.request_bytes <= self.limit_bytes:",
            "if not self.request_bytes <= self.limit_bytes:",
        ),
    ),
    *mutants_of(
        "core/model/gpu.py",
        (
            "strangers take nothing",
            "What nobody placed owns what it uses.",
            "return max(0, self.memory_total_bytes - max(self.confirmed_bytes, self._owned_bytes))",
            "return max(0, self.memory_total_bytes - self._owned_bytes)",
        ),
        (
            "one sample with a stranger takes room away",
            "Nobody leaves for what one sample alone has shown.",
            "return max(0, self.memory_total_bytes - max(self.confirmed_bytes, self._owned_bytes))",
            "return max(0, self.memory_total_bytes - self.foreign_bytes)",
        ),
        (
            "owners who use less have less",
            "An owner counts with its request or what it uses, whichever is more.",
            "return max(self.unplaced_bytes, self._owned_bytes)",
            "return min(self.unplaced_bytes, self._owned_bytes)",
        ),
        (
            "an owner may be borrowed from",
            "Where somebody owns a part whom nobody here looks after, nobody borrows.",
            "return bool(self.confirmed or self.owners)",
            "return self.confirmed",
        ),
        (
            "a borrower leaves for one sample with a stranger",
            "Nobody leaves for what one sample alone has shown.",
            "return bool(self.confirmed or self.owners)",
            "return bool(self.unplaced or self.owners)",
        ),
    ),
    *mutants_of(
        "core/model/policy.py",
        (
            "a Gpu belongs to the last pool that names it",
            "A Gpu belongs to the first pool that names it.",
            "next((pool for pool in self.pools if pool.names(gpu)), None)",
            "next((pool for pool in reversed(self.pools) if pool.names(gpu)), None)",
        ),
        (
            "a short deadline is all for the interrupt",
            "A cell is interrupted interrupt_grace_s before the deadline, or half of it.",
            "return min(self.interrupt_grace_s, self.reclaim_deadline_s / 2)",
            "return self.interrupt_grace_s",
        ),
        (
            "the deadline leaves no time to stop",
            "A guarantee is there within reclaim_deadline_s, the stop included.",
            "since + self.reclaim_deadline_s - self.stop_grace_s",
            "since + self.reclaim_deadline_s + self.stop_grace_s",
        ),
        (
            "who is told late has no time left",
            "A running cell is told and interrupted before it is stopped.",
            "told_since + self.ladder_s)",
            "since)",
        ),
        (
            "a turn is as long whatever the move takes",
            "Turns cost at most a tenth.",
            "return max(self.min_residency_s, self.residency_per_move * workload.last_move_s)",
            "return self.min_residency_s",
        ),
        (
            "a turn may be as short as its move",
            "A holder keeps its Gpu for min_residency_s at least.",
            "return max(self.min_residency_s, self.residency_per_move * workload.last_move_s)",
            "return self.residency_per_move * workload.last_move_s",
        ),
    ),
    *mutants_of(
        "core/model/state.py",
        (
            "a restart is quiet for ever",
            "After the grace orders are given, whoever has not reported.",
            "return (bool(self.unreported) or self.forgetful) and self.at < self.quiet_until",
            "return bool(self.unreported) or self.forgetful",
        ),
        (
            "a lost journal disturbs at once",
            "After a journal was lost nobody is ordered about for the grace.",
            "return (bool(self.unreported) or self.forgetful) and self.at < self.quiet_until",
            "return bool(self.unreported) and self.at < self.quiet_until",
        ),
    ),
    *mutants_of(
        "core/model/pools.py",
        (
            "slices are not named by their Gpu",
            "A pool that names a Gpu names its slices.",
            "(gpu.uuid, gpu.parent, str(gpu.index))",
            "(gpu.uuid, str(gpu.index))",
        ),
        (
            "product names are not matched",
            "A pool names Gpus by product with *.",
            "(not word.isdecimal() and fnmatchcase(gpu.name, word))",
            "(not word.isdecimal() and gpu.name == word)",
        ),
        (
            "no more is promised than there is",
            "A pool's oversubscribe bounds the sum of home requests.",
            "return int(gpu.capacity_bytes * self.oversubscribe)",
            "return int(gpu.capacity_bytes)",
        ),
        (
            "more is promised than the bound",
            "A pool's oversubscribe bounds the sum of home requests.",
            "return int(gpu.capacity_bytes * self.oversubscribe)",
            "return int(gpu.capacity_bytes * self.oversubscribe * 2)",
        ),
    ),
    *mutants_of(
        "core/model/transitions.py",
        (
            "everything leads everywhere",
            "An illegal transition is a defect that is told with the record.",
            "if to not in TABLE.get((workload.phase, trigger), frozenset()):",
            "if False:",
        ),
    ),
]
