"""Victims in the written order; moves for burst alone are few."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = [
    *mutants_of(
        "core/planning/making_room/victims.py",
        (
            "a running cell is as good a victim as an idle notebook",
            "Idle goes before executing.",
            "workload.executing or workload.kept(at),",
            "workload.kept(at),",
        ),
        (
            "a kept notebook is as good a victim as another",
            "Who is kept by its user counts as executing.",
            "workload.executing or workload.kept(at),",
            "workload.executing,",
        ),
        ("priority saves nobody", "The lowest priority goes first.", "workload.spec.priority,", "0,"),
        (
            "how far above the request does not count",
            "The largest over-request goes first.",
            "-workload.over_request_bytes,",
            "0,",
        ),
        (
            "bytes to move do not count",
            "Among those within their requests the fewest bytes move.",
            "        workload.moved_bytes,",
            "        0,",
        ),
        (
            "the shortest idle goes first",
            "The longest idle goes first.",
            "workload.idle_since if workload.idle_since is not None else workload.submitted_at,",
            "-(workload.idle_since or 0.0),",
        ),
        (
            "the earliest arrival goes first",
            "Among equals the latest arrival goes.",
            "        -workload.submitted_at,",
            "        workload.submitted_at,",
        ),
        (
            "a failed suspend is forgotten",
            "None is suspended for a burst soon after a suspend of it has failed.",
            "return failed_at is not None and",
            "return False and failed_at is not None and",
        ),
        (
            "a turn is over when it begins",
            "A holder of burst keeps its Gpu for its residency.",
            "return workload.resident_since + state.policy.residency_s(workload)",
            "return workload.resident_since",
        ),
    ),
    *mutants_of(
        "core/planning/places/burst_moves.py",
        (
            "every move is forgotten at once",
            "The moves of the last hour count against the bound.",
            "if moved_at > at - HOUR_S)",
            "if moved_at > at)",
        ),
        (
            "one move too many",
            "A workload moves for burst no more often in an hour than the policy says.",
            "len(recent) >= policy.max_moves_per_hour",
            "len(recent) > policy.max_moves_per_hour",
        ),
        (
            "no cool-down",
            "Between two moves for burst alone there is a cool-down.",
            "t + policy.cool_down_s for t in",
            "t for t in",
        ),
        (
            "no pause after a failed suspend",
            "After a failed suspend there is a pause before the next move for burst.",
            "(workload.moved_at, workload.suspend_failed_at)",
            "(workload.moved_at,)",
        ),
        (
            "zero moves per hour mean any number",
            "With max_moves_per_hour = 0 nobody moves for burst alone.",
            "if not policy.max_moves_per_hour:",
            "if False:",
        ),
        (
            "the earliest reason to wait counts",
            "All reasons to wait hold.",
            "return max(times, default=state.at)",
            "return min(times, default=state.at)",
        ),
        (
            "a put-off move waits an hour from the last one",
            "A move that was put off happens as soon as an hour has fewer.",
            "recent[-policy.max_moves_per_hour] + HOUR_S",
            "recent[-1] + HOUR_S",
        ),
    ),
]
