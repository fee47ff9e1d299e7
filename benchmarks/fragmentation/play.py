"""Pods come to a cluster one after another, and none leaves, until they have asked for as much as there is."""

from __future__ import annotations

import random
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fragmentation.cluster import Cluster
from fragmentation.inside_nodes import InsideNodes
from fragmentation.policies import POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fragmentation.cluster import Place
    from fragmentation.inside_nodes import Room
    from fragmentation.trace import Node, Pod, Trace


ORDER_OF_NODES: Final = 7
"""Of the orders drawn with 0 to 8 the one whose Packing is nearest to the published row; other policies hardly care."""


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


class Play:
    """A cluster that pods come to: each goes where the policy says; if that is nowhere, with `moves`, room is made."""

    def __init__(self, trace: Trace, policy_name: str, seed: int, *, moves: bool) -> None:
        self.cluster = Cluster(in_drawn_order(trace))
        self.policy = POLICIES[policy_name](self.cluster, trace.pods, seed)
        self.inside = InsideNodes(self.cluster) if moves else None
        self.outcome = Outcome(trace.capacity_milli)

    def come(self, number: int, pod: Pod, place: Place | None) -> None:
        """The `number`th pod is placed, where the policy chose or where room is made, or refused."""
        self.outcome.arrived += 1
        if place is None and self.inside is not None and pod.gpus:
            room = self.inside.choose(pod)
            if room is not None:
                place = room.place
                self.cluster.move(place.node, room.moves)
                self.outcome.count(room)
        if place is None:
            self.outcome.refused += 1
            return
        self.cluster.put(number, pod, place)
        self.outcome.allocated_milli += pod.request_milli


def play(trace: Trace, policy_name: str, seed: int, *, moves: bool = False) -> Outcome:
    """What comes of the pods of a seed."""
    one = Play(trace, policy_name, seed, moves=moves)
    for number, pod in enumerate(arrivals(trace, seed)):
        one.come(number, pod, one.policy.choose(pod))
    return one.outcome


def play_both(trace: Trace, policy_name: str, seed: int) -> tuple[Outcome, Outcome]:
    """Without moves and with them. Until somebody is refused both are the same, and played once."""
    once, moved = Play(trace, policy_name, seed, moves=False), None
    for number, pod in enumerate(arrivals(trace, seed)):
        place = once.policy.choose(pod)
        if moved is None and place is None:
            moved = deepcopy(once)
            moved.inside = InsideNodes(moved.cluster)
        once.come(number, pod, place)
        if moved is not None:
            moved.come(number, pod, moved.policy.choose(pod))
    return once.outcome, once.outcome if moved is None else moved.outcome
