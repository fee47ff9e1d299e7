"""What a cluster gave away; caches before anybody leaves; allocations that have failed."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = [
    *mutants_of(
        "core/planning/claims.py",
        (
            "a device to come needs no room",
            "As many Gpus are kept free as devices are promised.",
            "if owner.devices_to_come < 1:",
            "if True:",
        ),
        (
            "one Gpu is kept free for all devices to come",
            "As many Gpus are kept free as devices are promised.",
            "[: owner.devices_to_come]]",
            "[:1]]",
        ),
        (
            "a home is kept free for a device to come",
            "No device to come is a Gpu that somebody has already.",
            "not taken[uuid] and uuid not in homes]",
            "not taken[uuid]]",
        ),
        (
            "another Gpu is kept free each time",
            "The Gpu kept free stays the same until the kubelet has chosen.",
            "return (not kept, not there,",
            "return (not there,",
        ),
        (
            "a part is all of it",
            "An owner has the part that it was given.",
            "whole if owner.request_bytes is None else owner.request_bytes)",
            "whole)",
        ),
        (
            "claims that are withdrawn stay",
            "Claims that are withdrawn give the Gpu back.",
            "if not state.claims.owners and not any(gpu.owners for gpu in state.gpus.values()):",
            "if not state.claims.owners:",
        ),
    ),
    *mutants_of(
        "core/planning/places/trims.py",
        (
            "who is within its request gives caches back",
            "Who holds no more than its request keeps its caches.",
            "return running and workload.measured and workload.over_request_bytes > 0",
            "return running and workload.measured",
        ),
        (
            "commands are trimmed",
            "Only notebooks' allocators can be told to give back.",
            "workload.phase is Phase.RUNNING and workload.spec.kind is Kind.NOTEBOOK",
            "workload.phase is Phase.RUNNING",
        ),
        (
            "one cause trims again and again",
            "One cause trims once.",
            "return workload.trimmed_at is None or workload.trimmed_at < entry.trim_since",
            "return True",
        ),
        (
            "a second cause trims nobody",
            "Each cause trims anew.",
            "return workload.trimmed_at is None or workload.trimmed_at < entry.trim_since",
            "return workload.trimmed_at is None",
        ),
        (
            "what a trim freed is not waited for",
            "The next rung follows when the driver has shown what a trim freed.",
            "return workload.trim_shows_by is not None and state.at < workload.trim_shows_by",
            "return False",
        ),
        (
            "a trim that is under way is not waited for",
            "The next rung follows when a trim is answered.",
            "return any(w.trim is not None or ",
            "return any(",
        ),
        (
            "only one's own caches are waited for",
            "A victim waits for what trims of all on its Gpus free.",
            "there = (w for w in state.workloads.values() if set(w.current) & set(workload.current))",
            "there = (workload,)",
        ),
        (
            "a trim takes all the time there is",
            "A trim that is not answered takes a part of the deadline only.",
            "_PART_OF_DEADLINE = 0.25",
            "_PART_OF_DEADLINE = 1.0",
        ),
        (
            "a trim has no end",
            "A trim that is not answered counts as done after its time.",
            "at = state.at + state.policy.trim_timeout_s",
            "at = state.at + 1e6",
        ),
    ),
    *mutants_of(
        "core/planning/places/failed_allocations.py",
        (
            "more than the limit is granted",
            "More than the limit is refused at once.",
            "    if needed > workload.spec.limit_bytes:\n",
            "    if False:\n",
        ),
        (
            "more than the allowance is granted",
            "More than the allowance is refused, with who holds what.",
            "    if needed > allowance:\n",
            "    if False:\n",
        ),
        (
            "an answer comes before a sample",
            "An allocation is answered by a sample taken since it was asked for.",
            "    if not late and not wanted.shown:\n        return None\n",
            "",
        ),
        (
            "an answer is never late",
            "An allocation is answered in time.",
            "state.at >= wanted.deadline_at\n",
            "False\n",
        ),
        (
            "trims are not waited for",
            "Caches make room before an allocation is refused.",
            "if not late and (trims.is_any_open(state, there) or owed):",
            "if not late and owed:",
        ),
        (
            "what is owed is not waited for",
            "Memory within the request is waited for until who is above theirs has left.",
            "if not late and (trims.is_any_open(state, there) or owed):",
            "if not late and trims.is_any_open(state, there):",
        ),
        (
            "what was refused is forgotten",
            "Who was refused memory moves where it may use that much.",
            "wished = wanted if wishes else workload.wished_bytes",
            "wished = workload.wished_bytes",
        ),
        (
            "a refusal does not say who holds the Gpu",
            "A refusal says who holds what.",
            'return f"{may} ({_holders(state, gpu)}); {_ask_for(needed)}, {_OWN_HELP}"',
            'return f"{may}; {_ask_for(needed)}, {_OWN_HELP}"',
        ),
        (
            "who asks moves at others' cost",
            "A move for what was refused lowers nobody's smallest share.",
            " and draft.rooms.value()[0] >= before[0]",
            "",
        ),
        (
            "an answer outlives its process",
            "An allocation of a process that is gone is refused.",
            "if gpu is None or workload.phase is not Phase.RUNNING or wanted.gpu not in workload.current:",
            "if gpu is None:",
        ),
        (
            "everybody gives caches back for a burst",
            "For a burst only who is above its allowance or idle gives caches back.",
            "if owed or above or not other.executing:",
            "if True:",
        ),
    ),
]
