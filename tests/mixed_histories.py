"""Random histories of a node with everything in them at once, each drawn by its number alone.

Queues, pools, gangs, elastic commands, wishes, strangers, reloads, restarts, lost journals and failures are mixed, in
proportions that differ from one history to the next. All of a history is drawn before it is played, so that one that
breaks a sentence can be made smaller for as long as it breaks it.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from connections import joined, pairs
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Placement, Pool
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.topology import Link
from nls_scheduler.core.simulator import GIB
from nls_scheduler.requests.queue_config import parse_queues
from properties.test_histories import QUEUES, Histories
from properties.test_queue_histories import QueueHistories
from properties.test_shares import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nls_scheduler.core.model.gpu import Gpu

Event = tuple[str, dict[str, Any]]
"""The name of a rule of `Histories` or `QueueHistories`, and its arguments."""
LENGTHS = (30, 60, 120)
LOSSES_FROM = 1_000_000
"""Histories from this number on have journals that lose their ends, too."""
SILENCE_FROM = 2_000_000
"""Histories from this number on have drivers that tell nothing of a Gpu for a while, too."""
WIDE_FROM = 3_000_000
"""Histories from this number on have up to eight Gpus of several sizes, and pods of a cluster to whom some belong."""
SECONDS = (0.0, 0.5, 20.0, 40.0)


@dataclass(frozen=True)
class History:
    """How a node begins, and what happens to it then."""

    with_queues: bool
    start: dict[str, Any]
    events: tuple[Event, ...]

    def __str__(self) -> str:
        """One line for the beginning and one for each event."""
        start = f"{'with queues, ' * self.with_queues}{self.start}"
        return "\n".join([start, *(f"{name} {arguments}" for name, arguments in self.events)])


@dataclass(frozen=True)
class Finding:
    """What went wrong in a history, and when."""

    kind: str
    told: str
    after: int


class Draw(random.Random):
    """Draws the parts of a history."""

    def some(self, most: int, up_to: int = 20) -> list[int]:
        """Some numbers, seldom many."""
        return [self.randint(0, up_to) for _ in range(self.choice([0, 0, 1, most]))]

    def chance(self, of: float) -> bool:
        """True with this probability."""
        return self.random() < of

    def queues(self) -> tuple[Any, ...]:
        """`a` with `a1` and `a2` in it, and `b`: whatever can be configured."""
        while True:
            amounts = [0.0, 0.5, 1.0, 2.0, 3.0, None]
            written = {
                name: {
                    "quota": {"*": self.choice(amounts)},
                    "limit": {"*": self.choice(amounts)},
                    "over_quota_weight": self.choice([0.0, 1.0, 1.0, 2.0]),
                    "priority": self.randint(0, 1),
                    **({"parent": "a"} if name in ("a1", "a2") else {}),
                }
                for name in NAMES
                if name == "a" or self.chance(0.5)
            }
            try:
                return parse_queues(written, (), int, int)
            except ValueError:
                continue

    def rules(self) -> dict[str, Any]:
        """What a policy says of all pools, and a pool of itself."""
        return {
            "placement": self.choice([Placement.SPREAD, Placement.SPREAD, Placement.BINPACK]),
            "max_workloads_per_gpu": self.choice([None, None, 2, 5]),
            "idle_suspend_s": self.choice([None, None, 20.0]),
            "oversubscribe": self.choice([1.0, 1.0, 1.5, 2.0]),
        }

    def policy(self, *, queues: bool) -> Policy:
        """An administrator's rules."""
        gpus = self.choice([("1", "3"), ("0",), ("0", "2"), ("2", "3")])
        second = Pool(name="second", gpus=gpus, enabled=self.chance(0.7), **self.rules())
        return Policy(
            pools=(second,) if self.chance(0.5) else (),
            queues=self.queues() if queues and self.chance(0.8) else (),
            reclaim_deadline_s=self.choice([30.0, 30.0, 5.0, 60.0]),
            freeze_cells=self.chance(0.3),
            **self.rules(),
        )


@dataclass(frozen=True)
class Sized:
    """Gpus of so many GiB, that are not connected."""

    sizes: tuple[int, ...]

    def __call__(self, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        """For `SimulatedNode.of`."""
        return tuple(replace(gpu, memory_total_bytes=self.sizes[gpu.index] * GIB) for gpu in gpus)


def drawn(number: int) -> History:
    """The history of that number."""
    draw = Draw(number)
    queues = draw.chance(0.6)
    connect = draw.choice([joined(), joined(numa=2), pairs((0, 1), (2, 3)), joined((Link.SWITCH, (1, 2)))])
    start = {
        "policy": draw.policy(queues=queues), "gpus": draw.randint(1, 4), "strangers": draw.chance(0.5),
        "connect": connect, "slices": draw.chance(0.3),
    }  # fmt: skip
    may_happen = dict(_may_happen(draw, queues=queues, strangers=start["strangers"]))
    if number >= SILENCE_FROM:
        may_happen["the_driver_tells_nothing_of_a_gpu"] = (
            1,
            lambda: {"gpu": draw.randint(0, 7), "silent": draw.chance(0.5)},
        )
    if number >= WIDE_FROM:
        start["gpus"] = draw.choice([1, 2, 4, 8])
        start["connect"] = Sized(tuple(draw.choice([8, 16, 16, 24, 40]) for _ in range(8)))
        may_happen["a_cluster_gives_gpus_to_its_pods"] = (
            1,
            lambda: {
                "owned": [
                    (draw.randint(0, 7), draw.choice([0, 2, 8, 16]), draw.choice([0, 0, 1]))
                    for _ in range(draw.randint(0, 3))
                ],
                "cordoned": draw.chance(0.2),
            },
        )
    names = list(may_happen)
    weights = [weight * draw.choice([0.3, 1.0, 1.0, 3.0]) for weight, _ in may_happen.values()]
    happens = draw.choices(names, weights, k=draw.choice(LENGTHS))
    events = [(name, may_happen[name][1]()) for name in happens]
    return History(queues, start, tuple(_with_losses(draw, events) if number >= LOSSES_FROM else events))


def _with_losses(draw: Draw, events: list[Event]) -> list[Event]:
    """The same, and now and then the journal cannot be written for a while before the daemon is killed."""
    for _ in range(draw.randint(1, 3)):
        begins, ends = sorted(draw.randint(0, len(events)) for _ in range(2))
        events.insert(ends, ("the_daemon_loses_what_could_not_be_written", {"killed": draw.some(1)}))
        events.insert(begins, ("the_journal_cannot_be_written_from_now_on", {}))
    return events


def _may_happen(
    draw: Draw, *, queues: bool, strangers: bool
) -> Iterator[tuple[str, tuple[float, Callable[[], dict[str, Any]]]]]:
    """Each rule, how often it is drawn, and its arguments."""

    def one() -> int:
        return draw.randint(0, 50)

    def quarters() -> int:
        return draw.randint(1, 16)

    def of_all() -> dict[str, Any]:
        priority = draw.choice([0, 50, 50, 100, 125]) if queues else draw.randint(0, 2)
        return {
            "request": quarters(), "burst": draw.randint(0, 16), "priority": priority,
            "kind": draw.choice(list(Kind)), "requeue": draw.chance(0.5), "gpus": draw.choice([1, 1, 1, 2, 3]),
            "pools": draw.choice([("default",), ("default",), ("second", "default"), ("second",)]),
            **({"queue": draw.choice(QUEUES)} if queues else {}),
        }  # fmt: skip

    def of_a_gang() -> dict[str, Any]:
        return {
            "request": quarters(), "members": draw.randint(1, 4), "missing": draw.choice([0, 0, 1]),
            "priority": draw.choice([0, 1, 2, 100]), "burst": draw.choice([0, 0, 4]), "requeue": draw.chance(0.5),
            "name": draw.choice(["red", "blue"]), "queue": draw.choice(QUEUES),
        }  # fmt: skip

    def of_an_elastic_one() -> dict[str, Any]:
        return {
            "fewest": draw.randint(1, 2), "more": draw.randint(1, 3), "request": quarters(),
            "requeue": draw.chance(0.7), "queue": draw.choice(QUEUES),
        }  # fmt: skip

    def seconds() -> float:
        return draw.choice(SECONDS) * draw.choice([1.0, draw.random()])

    yield "submit", (6, of_all)
    yield "submit_gang", (2, of_a_gang)
    yield "submit_elastic", (2, of_an_elastic_one)
    yield "ends_well", (1, lambda: {"choice": one()})
    yield "user_migrates", (1, lambda: {"choice": one(), "gpu": draw.randint(0, 3)})
    yield "complete", (14, lambda: {"choice": one(), "back": draw.chance(0.3)})
    yield "fail", (2, lambda: {"choice": one()})
    yield "an_allocation_fails", (1, lambda: {"choice": one(), "wanted": quarters()})
    yield "hold", (4, lambda: {"choice": one(), "wanted": quarters(), "cached": draw.randint(0, 8)})
    yield "cell", (5, lambda: {"choice": one()})
    yield "kill", (1, lambda: {"choice": one()})
    yield (
        "user_asks_for_another_size",
        (2, lambda: {"choice": one(), "request": quarters(), "burst": quarters()}),
    )
    yield "release", (1, lambda: {"choice": one()})
    yield "user_suspends_or_resumes", (1, lambda: {"choice": one(), "back": draw.chance(0.5)})
    yield "user_keeps_it", (1, lambda: {"choice": one(), "seconds": draw.choice([None, 100 * draw.random()])})
    yield (
        "the_daemon_is_killed_and_starts_again",
        (
            0.5,
            lambda: {
                "carried_out": draw.some(4),
                "killed": draw.some(2),
                "cells": draw.some(2),
                "reported": draw.some(4),
            },
        ),
    )
    yield "the_daemon_loses_its_journal", (0.2, lambda: {"killed": draw.some(1), "brought_back": draw.some(8)})
    yield "the_administrator_changes_the_rules", (0.5, lambda: {"policy": draw.policy(queues=queues)})
    yield "timer", (4, dict)
    yield "time_passes", (5, lambda: {"seconds": seconds()})
    yield "sample", (2, dict)
    yield "the_daemon_stands_still", (0.3, lambda: {"seconds": 1.0 + seconds()})
    if strangers:
        yield "a_stranger_uses_a_gpu", (1, lambda: {"gpu": draw.randint(0, 3), "size": draw.randint(0, 4)})
        yield "health_changes", (0.5, lambda: {"gpu": draw.randint(0, 3), "healthy": draw.chance(0.7)})
    if queues:
        yield (
            "user_asks_for_something_else",
            (1, lambda: {"choice": one(), "priority": draw.choice([0, 50, 100]), "queue": draw.choice(NAMES)}),
        )


def played(history: History) -> Finding | None:
    """What is wrong after some event of `history`, or when all has settled; `None`: nothing."""
    machine = (QueueHistories if history.with_queues else Histories)()
    machine.start(**history.start)
    done = 0
    try:
        for done, (name, arguments) in enumerate(history.events, start=1):
            getattr(machine, name)(**arguments)
            machine.processes_fit_in_memory()
            machine.no_workload_is_lost()
            if history.with_queues and done % 8 == 0:
                machine.everything_can_be_explained()
        machine.teardown()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        told = f"{type(error).__name__}: {error}"
        return Finding(re.sub(r"\S*\d\S*", "#", told)[:60], told, done)
    return None


def smallest(history: History, finding: Finding) -> tuple[History, Finding]:
    """A history from which nothing can be left out so that the same kind of thing still goes wrong, and what does."""
    history, size = replace(history, events=history.events[: finding.after]), max(1, finding.after // 2)
    while True:
        smaller, at = False, 0
        while at < len(history.events):
            less = replace(history, events=history.events[:at] + history.events[at + size :])
            found = played(less)
            if found is not None and found.kind == finding.kind:
                history, finding, smaller = less, found, True
            else:
                at += size
        if size == 1 and not smaller:
            return history, finding
        size = max(1, size // 2)
