"""Queues: hierarchy, quota by pool, limit, over-quota weight, priority; fair shares."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = mutants_of(
    "core/model/queues.py",
    (
        "a quota is had without asking",
        "Everybody gets their quota as far as they ask for it.",
        "else min(quota, wanted[queue.name])",
        "else quota",
    ),
    (
        "a quota is nothing",
        "Everybody gets their quota as far as they ask for it.",
        "else min(quota, wanted[queue.name])",
        "else 0.0",
    ),
    (
        "an unlimited quota is none",
        "A quota without a bound is as much as is asked for.",
        "wanted[queue.name] if quota is None else",
        "0.0 if quota is None else",
    ),
    (
        "the lower priority is served first",
        "What is over quota goes to siblings of the highest priority first.",
        "for queue in siblings}, reverse=True)",
        "for queue in siblings})",
    ),
    (
        "weights are not weighed",
        "What is over quota is divided by weight.",
        "per_weight = left / sum(queue.weight_in(pool) for queue in thirsty)",
        "per_weight = left / len(thirsty)",
    ),
    (
        "everybody gets the same over quota",
        "What is over quota is divided by weight.",
        "shares[queue.name] += per_weight * queue.weight_in(pool)",
        "shares[queue.name] += left / len(thirsty)",
    ),
    (
        "who has no weight takes part",
        "A queue with weight 0 has no part of what is over quota.",
        "queue.weight_in(pool) > 0 and ",
        "",
    ),
    (
        "a limit does not bound a share",
        "Nobody's share is beyond its limit.",
        "return wanted if limit is None else min(wanted, limit)",
        "return wanted",
    ),
    (
        "children share the whole pool",
        "Queues inside one share that one's part.",
        "open_levels += [(queue.name, shares[queue.name])",
        "open_levels += [(queue.name, capacity)",
    ),
    (
        "a parent asks for its largest child only",
        "A queue asks for what all queues in it ask for.",
        "else sum(_wanted(tree, q, pool, demand) for q in below)",
        "else max(_wanted(tree, q, pool, demand) for q in below)",
    ),
    (
        "what one leaves is lost",
        "What one does not need goes to the others.",
        "            left -= wanted[queue.name] - shares[queue.name]",
        "            left -= per_weight * queue.weight_in(pool)",
    ),
    (
        "a queue with others in it takes workloads",
        "Workloads are in the innermost queues.",
        "return name if self.is_leaf(name) else DEFAULT",
        "return name if name in self.queues else DEFAULT",
    ),
    (
        "a shared ancestor counts as a sibling",
        "Two queues are compared below the ancestors that they share.",
        "tuple(queue for queue in against if queue.name not in shared)",
        "against",
    ),
    (
        "a new pool changes guarantees",
        "A pool that a queue does not name guarantees it nothing.",
        "return _amount(self.quota, pool, 0.0)",
        "return _amount(self.quota, pool, None)",
    ),
    (
        "an amount for every pool is for none",
        "An amount for * is for all pools that are not named.",
        "else amounts.get(EVERY_POOL, otherwise)",
        "else otherwise",
    ),
    (
        "no weight unless given",
        "A weight is 1 unless given.",
        "return _amount(self.over_quota_weight, pool, 1.0) or 0.0",
        "return _amount(self.over_quota_weight, pool, 0.0) or 0.0",
    ),
    (
        "a queue is open to whom it does not name",
        "A queue that names users is for those.",
        "return not (self.uids or self.gids) or",
        "return True or",
    ),
    (
        "groups are ignored",
        "A queue is open to the groups that it names.",
        " or not set(self.gids).isdisjoint(gids)",
        "",
    ),
    (
        "build may be displaced",
        "From priority 100 on a workload is not preemptible.",
        "FIRM_FROM: Final = 100",
        "FIRM_FROM: Final = 101",
    ),
    (
        "ten tenths are more than one",
        "Amounts are compared with a tolerance.",
        "TOLERANCE: Final = 1e-6",
        "TOLERANCE: Final = 0.0",
    ),
)
