"""What people ask for, may ask for and read: admission, queues and pools as written, explain, moves by hand."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = [
    *mutants_of(
        "requests/submission.py",
        (
            "what no Gpu has is waited for",
            "A request beyond any Gpu is refused at once, with the largest that fits.",
            "        if size_bytes > largest.memory_total_bytes:\n",
            "        if False:\n",
        ),
        (
            "more Gpus than there are are waited for",
            "More Gpus than there are are refused at once.",
            '    if spec.gpu_count > len(gpus):\n        raise impossible(f"This node has {_count(len(gpus))}, not',
            '    if False:\n        raise impossible(f"This node has {_count(len(gpus))}, not',
        ),
        (
            "several slices are waited for",
            "A process sees one slice at most.",
            "gpus = [gpu for gpu in gpus if gpu.parent is None]",
            "gpus = list(gpus)",
        ),
        (
            "Gpus that are too small count",
            "As many Gpus of that size as there are not is refused at once.",
            "    if spec.gpu_count > fitting:\n",
            "    if False:\n",
        ),
        (
            "a pool that is off is waited for",
            "A pool without a Gpu in service is refused at once.",
            "    if not offered:\n",
            "    if not gpus:\n",
        ),
        (
            "a request may be above its limit",
            "A request is at most the limit.",
            "    if spec.request_bytes > limit_bytes:\n",
            "    if False:\n",
        ),
        (
            "notebooks may be elastic or in gangs",
            "Only commands are elastic or in a gang.",
            "if spec.kind is not Kind.COMMAND and (",
            "if False and (",
        ),
        (
            "a user raises its priority",
            "A queue bounds the priority of its users' workloads.",
            "    check_priority(spec, policy, who)\n    _refuse",
            "    _refuse",
        ),
    ),
    *mutants_of(
        "requests/queue_config.py",
        (
            "queues go round in a circle",
            "Queues in a circle are refused.",
            "            if parent in above:\n",
            "            if False:\n",
        ),
        (
            "a parent need not be there",
            "A parent that is not configured is refused.",
            "            if parent not in queues:\n",
            "            if False:\n",
        ),
        (
            "a quota may be above the limit",
            "A quota above the limit is refused.",
            "if limit is not None and (quota is None or quota > limit + TOLERANCE):",
            "if False:",
        ),
        (
            "children are promised more than their parent has",
            "A quota above the parent's is refused.",
            "if own is not None and (total is None or total > own + TOLERANCE):",
            "if False:",
        ),
        (
            "quotas beyond the node are not told",
            "Quotas above what the node has are taken, and said.",
            "        if promised > there + TOLERANCE:\n",
            "        if False:\n",
        ),
        (
            "an amount may be less than nothing",
            "An amount is 0 or more.",
            "not (number and amount >= 0):",
            "not number:",
        ),
    ),
    *mutants_of(
        "requests/pool_config.py",
        (
            "a pool without a Gpu is not told",
            "A pool that matches nothing is told.",
            "        if gpus and not named:\n",
            "        if False:\n",
        ),
        (
            "pools that overlap are not told",
            "Pools that overlap are told; the first has the Gpu.",
            "            if gpu.uuid in claimed:\n",
            "            if False:\n",
        ),
        (
            "a pool may promise less than there is",
            "oversubscribe is 1.0 or more.",
            "        _is_number(pool.oversubscribe, 1.0),\n",
            "        _is_number(pool.oversubscribe, 0.0),\n",
        ),
    ),
    *mutants_of(
        "requests/queue_access.py",
        (
            "anybody uses any queue",
            "A queue that names users is for those.",
            "    if not queue.is_open_to(who.uid, who.gids):\n",
            "    if False:\n",
        ),
        (
            "a queue's highest priority bounds nobody",
            "A queue bounds the priority of its users' workloads.",
            "spec.priority > queue.max_priority:",
            "False:",
        ),
        (
            "one comes in small and grows",
            "A change that its queue would not admit is refused as a whole.",
            "if (grows or firmer or elsewhere) and obstacle is not None:",
            "if (firmer or elsewhere) and obstacle is not None:",
        ),
        (
            "one comes in soft and becomes firm",
            "A change that its queue would not admit is refused as a whole.",
            "if (grows or firmer or elsewhere) and obstacle is not None:",
            "if (grows or elsewhere) and obstacle is not None:",
        ),
        (
            "one comes in elsewhere and changes its queue",
            "A change that its queue would not admit is refused as a whole.",
            "if (grows or firmer or elsewhere) and obstacle is not None:",
            "if (grows or firmer) and obstacle is not None:",
        ),
        (
            "who names no queue is in none of its own",
            "Who names no queue is in the first that names its user.",
            "return next((queue.name for queue in named if tree.is_leaf(queue.name)), DEFAULT)",
            "return DEFAULT",
        ),
    ),
    *mutants_of(
        "views/explain.py",
        (
            "the queue's rule is not told",
            "explain says which queue's rule keeps a workload out.",
            "        return obstacle.text\n",
            "        return None\n",
        ),
        (
            "a Gpu of another pool looks open",
            "explain says which pool a Gpu is in.",
            "    if pool.name not in workload.spec.pools:\n",
            "    if False:\n",
        ),
        (
            "what would fit is not told",
            "explain says which request there is room for.",
            'return [f"There is room for a request of {format_bytes(largest)} now."]',
            "return []",
        ),
        (
            "who is ahead is not told",
            "explain names who is in front.",
            "if place < entry.position)",
            "if place < 0)",
        ),
        (
            "the deadline is not told",
            "explain says until when one has to leave.",
            "    if entry.deadline_at is not None:\n        left",
            "    if False:\n        left",
        ),
        (
            "paper with itself on it",
            "explain asks what the plan asked, without the one in question.",
            "        if other.id == but.id:\n            continue\n",
            "",
        ),
        (
            "there is always room on paper",
            "explain agrees with the plan.",
            "    if admission.has_home_room(workload, gpu.uuid):\n        return None\n",
            "    return None\n",
        ),
    ),
    *mutants_of(
        "requests/migration.py",
        (
            "a gang's member is moved by hand",
            "A workload of several GPUs or of a gang is never moved.",
            "    if spec.gang is not None or spec.gpu_count > 1 or spec.elastic:\n",
            "    if False:\n",
        ),
        (
            "a move without room is promised",
            "A move by hand is refused where there is no room, with who has it.",
            "    if after.plan[workload.id].target == (gpu,):\n        return\n",
            "    return\n",
        ),
        (
            "one is moved into another pool by hand",
            "A workload stays within its pools.",
            "    if not pool.enabled or pool.name not in workload.spec.pools:\n",
            "    if False:\n",
        ),
    ),
]
