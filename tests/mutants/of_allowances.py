"""The allowance: the request, and a max-min fair share of the room beside all requests."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = mutants_of(
    "core/planning/making_room/allowances.py",
    (
        "nobody has a share of the room",
        "Who may burst is allowed its request and its share of the room.",
        "granted[workload_id] += bytes_",
        "granted[workload_id] += 0",
    ),
    (
        "the requests leave all the room",
        "The room is what is left beside all requests.",
        "room[uuid] -= spec.request_bytes",
        "room[uuid] -= 0",
    ),
    (
        "what was granted is granted again",
        "Allowances fit in each Gpu beside the requests.",
        "room[uuid] -= bytes_",
        "room[uuid] -= 0",
    ),
    (
        "a share is rounded up",
        "Allowances fit in each Gpu to the byte.",
        "bytes_ = int(burst * share)",
        "bytes_ = int(burst * share) + 1",
    ),
    (
        "one full Gpu stops everybody",
        "Who is not on the full Gpu goes on growing.",
        "if full is None or full in gpus]",
        "]",
    ),
    (
        "the emptiest Gpu sets the share",
        "All shares grow together until the first Gpu is full.",
        "share, full = min(((max(0",
        "share, full = max(((max(0",
    ),
    (
        "a limit bounds nobody",
        "Nobody is allowed more than its limit.",
        "return (share, full) if share < 1.0 else (1.0, None)",
        "return (share, full)",
    ),
)
