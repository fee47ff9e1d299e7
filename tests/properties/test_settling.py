"""A node comes to rest when nothing happens any more, whoever has wishes, queues, pools or homes that were given.

What is ordered and at once taken back, without end, is a GPU process that is started and stopped as fast as it can be.
Few choices and many events, so that the same few Gpus are fought over again and again.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from at_rest import comes_to_rest
from effort import examples
from left_out import thinned
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Placement, Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.simulator import GIB, SimulatedNode

EVENTS = 200
MOST = 14
SETTINGS = {
    "without configuration": {"plain": True},
    "with rules": {},
    "where allocators cache": {"caches": True},
    "with queues and pools": {"queues": True},
    "beside a cluster": {"given": True},
    "where more is promised": {"promised": True},
    "with queues and pools, where more is promised": {"queues": True, "promised": True},
    "beside a cluster, where more is promised": {"given": True, "promised": True},
}
#: Histories that once went on without end, or broke a sentence.
FOUND = [
    ("beside a cluster", 60476),
    ("beside a cluster", 63820),
    ("beside a cluster, where more is promised", 62102),
    ("beside a cluster, where more is promised", 68366),
    ("without configuration", 68838),
    ("beside a cluster, where more is promised", 62907),
    ("where more is promised", 62528),
    ("where allocators cache", 231),
    ("with rules", 64507),
    ("with rules", 66703),
    ("with queues and pools, where more is promised", 62900),
]
POOLS = [("p",), ("default",), ("p", "default"), ("default", "p")]


def rules(chance: random.Random, *, queues: bool) -> Policy:
    """One administrator's; with `queues`, three departments that have little of two pools, one of them with a limit."""
    policy = Policy(
        oversubscribe=chance.choice((1.0, 1.0, 1.5, 2.0)),
        placement=chance.choice((Placement.SPREAD, Placement.SPREAD, Placement.BINPACK)),
        max_workloads_per_gpu=chance.choice((2, 5, 5, None)),
        idle_suspend_s=chance.choice((None, None, 30.0)),
        starvation_s=chance.choice((5.0, 60.0, 300.0)),
        min_gain=chance.choice((0.0, 0.1)),
        max_moves_per_hour=chance.choice((12, 0, 2)),
    )
    if not queues:
        return policy
    return replace(
        policy,
        pools=(Pool("p", gpus=("0", "2"), oversubscribe=chance.choice((1.0, 2.0))),),
        queues=(
            Queue("a", quota={"default": 1.0, "p": 0.5}),
            Queue("b", quota={"default": 0.5, "p": 1.0}, limit={"p": chance.choice((0.0, 0.5, 1.0))}),
            Queue("c", quota={"p": 0.25}),
        ),
    )


class History:
    """Users of one node who come, run cells, wish to be elsewhere, and go.

    `queues`: with departments and pools; `given`: a cluster's scheduler says where homes are; `plain`: with the rules
    that are there without any configuration; `promised`: every home is promised more than once; `caches`: processes
    hold more than is saved of them.
    """

    def __init__(
        self,
        seed: int,
        *,
        queues: bool = False,
        given: bool = False,
        plain: bool = False,
        promised: bool = False,
        caches: bool = False,
    ) -> None:
        self.chance = random.Random(seed)
        self.queues, self.given, self.caches = queues, given, caches
        policy = Policy() if plain else rules(self.chance, queues=queues)
        if promised:
            policy = replace(policy, oversubscribe=self.chance.choice((1.25, 1.5, 2.0, 3.0)))
        self.node = SimulatedNode.of(self.chance.choice((1, 2, 3, 4)), 16 * GIB, policy)

    def live(self) -> None:
        """As long as it lasts."""
        for number in range(EVENTS):
            if not self.node.state.workloads or self.chance.random() < 0.15:
                self.somebody_comes(number)
            elif self.chance.random() < 0.04:
                self.something_breaks()
            else:
                self.something_happens(self.chance.choice(sorted(self.node.state.workloads)))

    def somebody_comes(self, number: int) -> None:
        chance, state = self.chance, self.node.state
        if len(state.workloads) >= MOST:
            return
        wanted = {"queue": chance.choice("abc"), "pools": chance.choice(POOLS)} if self.queues else {}
        request, what = chance.choice((2, 4, 6, 8, 12)) * GIB, chance.random()
        sizes = {"request_bytes": request, "limit_bytes": request}
        if what < 0.7:
            sizes["limit_bytes"] = 16 * GIB
            self.submit(Kind.NOTEBOOK, **sizes, **wanted)
        elif what < 0.77:
            sizes["limit_bytes"] = 16 * GIB
            uses = chance.choice((2, 6, 10, 14)) * GIB
            self.submit(Kind.COMMAND, **sizes, **wanted, requeue=True, from_start_bytes=uses)
        elif what < 0.85 or self.given:
            self.submit(Kind.COMMAND, **sizes, **wanted, requeue=chance.random() < 0.5)
        else:
            uses, several = chance.choice((0, 6, 10, 14)) * GIB, {**sizes, **wanted, "requeue": True}
            if chance.random() < 0.5:
                several |= {"limit_bytes": 16 * GIB, "from_start_bytes": uses}
            if what < 0.92:
                for _ in range(2):
                    self.submit(Kind.COMMAND, **several, gang=f"gang-{number}", gang_size=2)
            elif what < 0.95:
                self.submit(Kind.COMMAND, **several, gpu_count=2)
            else:
                self.submit(Kind.COMMAND, **several, gpu_count_max=chance.choice((2, 3)))

    def submit(self, kind: Kind, **wanted: object) -> None:
        home = (self.chance.choice(sorted(self.node.state.gpus)),) if self.given else None
        self.node.submit(given_home=home, kind=kind, **wanted)

    def something_breaks(self) -> None:
        node, chance = self.node, self.chance
        gpu, key = chance.choice(sorted(node.state.gpus)), chance.choice(sorted(node.state.workloads))
        what = chance.random()
        if what < 0.3:
            node.set_health(gpu, healthy=not node.state.gpus[gpu].healthy)
        elif what < 0.6:
            node.strangers[gpu] = chance.choice((0, 0, 4, 12)) * GIB
            node.sample()
        elif node.workloads[key].process is not None:
            node.kill(key)

    def something_happens(self, key: str) -> None:
        node, chance, workload = self.node, self.chance, self.node.workloads[key]
        what = chance.random()
        if what < 0.45 and workload.spec.kind is Kind.NOTEBOOK:
            (node.finish_cell if workload.executing else node.start_cell)(key)
        elif what < 0.52:
            node.release(key)
        elif what < 0.58:
            asked = ev.ResumeRequested(node.now, key)
            node.tell(ev.SuspendRequested(node.now, key, "by its user") if chance.random() < 0.5 else asked)
        elif what < 0.65:
            node.tell(ev.MigrateRequested(node.now, key, chance.choice(sorted(node.state.gpus))))
        elif what < 0.67:
            node.tell(ev.KeepRequested(node.now, key, node.now + chance.choice((10, 100))))
        elif what < 0.7:
            node.hold(key, chance.choice((1, 4, 8)) * GIB, chance.choice((0, 2, 6)) * GIB if self.caches else 0)
        else:
            node.settle()
            if what > 0.85:
                node.advance(chance.choice((1, 10, 40)))


@pytest.mark.parametrize("seed", thinned(list(range(examples(24))), 4, "histories with wishes"))
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_whatever_users_wish_the_node_comes_to_rest(setting: dict[str, bool], seed: int) -> None:
    lives_and_rests(History(seed, **setting))


@pytest.mark.parametrize(("setting", "seed"), FOUND)
def test_histories_that_once_did_not_come_to_rest_do(setting: str, seed: int) -> None:
    lives_and_rests(History(seed, **SETTINGS[setting]))


def lives_and_rests(history: History) -> None:
    history.live()
    comes_to_rest(history.node)


@pytest.mark.parametrize("first", thinned(list(range(0, examples(600), 100)), 10, "crowds that come at once"))
def test_a_crowd_that_comes_at_once_comes_to_rest_where_more_is_promised_than_there_is(first: int) -> None:
    for seed in range(first, first + 100):
        chance = random.Random(seed)
        policy = Policy(oversubscribe=chance.choice((1.5, 2.0)), min_gain=chance.choice((0.0, 0.1)))
        node = SimulatedNode.of(chance.choice((2, 2, 3)), 16 * GIB, policy)
        for _ in range(chance.randint(4, 6)):
            request = chance.randint(3, 16)
            node.submit(request_bytes=request * GIB, limit_bytes=min(16, request + chance.randint(0, 8)) * GIB)
        node.settle()
        for workload in node.workloads:
            node.start_cell(workload)
        comes_to_rest(node)
