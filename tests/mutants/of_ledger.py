"""Who is admitted, whose turn it is, and who has to make room: across queues and within one."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = mutants_of(
    "core/planning/homes/queue_ledger.py",
    (
        "a limit holds nobody back",
        "Nobody is admitted beyond a limit.",
        "if limit is not None and used + amount",
        "if False and used + amount",
    ),
    (
        "a limit counts who is there, not who comes",
        "Nobody is admitted beyond a limit.",
        "used + amount > limit + TOLERANCE",
        "used > limit + TOLERANCE",
    ),
    (
        "what cannot be taken back goes over quota",
        "What is not preemptible is only admitted within its queue's quota.",
        "if firm and quota is not None",
        "if False and quota is not None",
    ),
    (
        "everything counts against the quota of the firm",
        "Only what is not preemptible counts there.",
        "            if not workload.spec.preemptible:\n",
        "            if True:\n",
    ),
    (
        "the queues above count nothing",
        "What a queue has, the queues above it have too.",
        "for queue in self.tree.chain(self.leaf(workload)):\n            key",
        "for queue in self.tree.chain(self.leaf(workload))[:1]:\n            key",
    ),
    (
        "only the innermost queue's limit holds",
        "Limits hold at every level.",
        "for queue in self.tree.chain(self.tree.leaf(spec.queue)):",
        "for queue in self.tree.chain(self.tree.leaf(spec.queue))[:1]:",
    ),
    (
        "who is over its share reclaims",
        "Only who stays within its fair share takes back.",
        "return within and all(",
        "return all(",
    ),
    (
        "who is within its share loses it",
        "Only who is above its fair share has to give.",
        "return within and all(self.used(q.name, pool) > self.fair(q.name, pool) + TOLERANCE for q in to_other)",
        "return within",
    ),
    (
        "a priority stops what would not come back",
        "A priority never stops a command that would not start again by itself.",
        " and (comes_back(victim) or not victim.present)",
        "",
    ),
    (
        "who is over its share is served as others are",
        "Queues within their fair share come first.",
        "self.used(queue.name, pool) > fair + TOLERANCE,",
        "False,",
    ),
    (
        "who is over quota is served as others are",
        "Queues within their quota come before those beyond.",
        "quota is not None and with_head > quota + TOLERANCE,",
        "False,",
    ),
    (
        "a queue's priority orders nothing",
        "Of two queues alike the one of higher priority is served first.",
        "            -queue.priority,",
        "            0,",
    ),
    (
        "who has most of its share is served as others are",
        "Whoever has the smallest part of its share comes first.",
        'with_head / fair if fair > TOLERANCE else float("inf"),',
        "0.0,",
    ),
    (
        "every command comes back",
        "A command that does not start again by itself is spared before others.",
        "return workload.spec.kind is Kind.NOTEBOOK or workload.spec.requeue",
        "return True",
    ),
    (
        "who has a home asks for others too",
        "Who has a home asks for it in its pool only.",
        "for pool in workload.spec.pools if own is None else (own,):",
        "for pool in workload.spec.pools:",
    ),
    (
        "a broken Gpu is shared out",
        "Fair shares are of the Gpus in service.",
        "            if gpu.healthy:\n",
        "            if True:\n",
    ),
    (
        "several Gpus count as one",
        "A workload counts with all the Gpus that it asks for.",
        "return spec.request_bytes * (count or spec.gpu_count) / memory_total_bytes",
        "return spec.request_bytes / memory_total_bytes",
    ),
    (
        "what an elastic one has above its fewest is not counted",
        "An elastic command counts with all the Gpus that it has.",
        "amount = sign * self.demand(workload.spec, pool, len(home))",
        "amount = sign * self.demand(workload.spec, pool)",
    ),
    (
        "inside a queue the last comes first",
        "Inside a queue priority goes first, then arrival.",
        "for workload in reversed(waiting):",
        "for workload in waiting:",
    ),
    (
        "who waits does not read its queue's share",
        "Who waits for room reads what its queue has and its fair share.",
        "its fair share is {format_amount(fair)}",
        "its share is what it is",
    ),
)
