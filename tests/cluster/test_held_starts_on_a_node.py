"""Starts that are held: the clock of the container against the moment when the borrower's GPU process has ended."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING, Any

import pytest

from one_node import PATIENCE_S, OneNode, held_pod
from waiting import wait_until

if TYPE_CHECKING:
    from story import Story

pytestmark = pytest.mark.timeout(400)

STARTS, SAVE_S = 5, 1.0
SLOW_STATE = f"""%%gpu
import time

class State:
    turns = 0

    def __getstate__(self):
        time.sleep({SAVE_S})
        return dict(vars(self))

state = State()
"""
LATE, HELD = "nls_kubernetes_vacate_lateness_seconds", "nls_kubernetes_start_held_seconds"


def borrower(node: OneNode) -> Any:
    """Who is on a GPU that is not its home's, between two cells."""
    entries = node.status().get("workloads", ())
    there = [entry for entry in entries if entry["phase"] == "running" and entry["current"] != entry["home"]]
    return there[0] if len(there) == 1 and len(node.current()) == 2 else None


def more(node: OneNode, before: dict[str, float], sample: str) -> float:
    """By how much a metric has grown."""
    return node.metrics()[sample] - before[sample]


def ended_at(pidfd: int) -> float:
    """When a process ends, in seconds since the boot."""
    assert select.select([pidfd], [], [], PATIENCE_S)[0], "it stays"
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_five_held_starts_in_a_row_are_each_after_the_borrower_s_end(node: OneNode, story: Story) -> None:
    for book in story.books.values():
        node.run(book, SLOW_STATE)
    before = node.metrics()
    for number in range(STARTS):
        there = wait_until(lambda: borrower(node), PATIENCE_S)
        for book in story.books.values():
            node.run(book, "%%gpu\nstate.turns += 1")
        pidfd = os.pidfd_open(there["pid"])
        name = f"held-{number}"
        # The first words of its container are when that began.
        node.apply(held_pod(name, command=["sh", "-c", "cat /proc/uptime; exec sleep infinity"]))
        left = ended_at(pidfd)
        os.close(pidfd)
        wait_until(lambda name=name: node.running(name), PATIENCE_S)
        began = float(wait_until(lambda name=name: node.kubectl("-n", "notebooks", "logs", name).split())[0])
        assert began > left, f"the container of {name} began {left - began:.2f} s before its GPU was vacated"
        wait_until(lambda told=number + 1: more(node, before, f"{LATE}_count") == told, PATIENCE_S)
        node.kubectl("-n", "notebooks", "delete", "pod", name)
    story.spread()
    story.kept()
    assert more(node, before, f'{LATE}_bucket{{le="0.0"}}') == STARTS
    assert more(node, before, f"{HELD}_count") == STARTS
    assert more(node, before, "nls_kubernetes_starts_anyway_total") == 0
