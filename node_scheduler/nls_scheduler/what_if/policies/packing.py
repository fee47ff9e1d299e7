"""Requests on Gpus, for those policies that count a request on one Gpu for a notebook's life."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nls_scheduler.what_if.play.stage import Actor, Stage


class Packing:
    """Who has a place, on the fullest Gpu that fits, and the line of those who have none: first come, first served."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._room = [stage.gpu_bytes] * stage.gpus
        self._line: list[Actor] = []
        self.place: dict[Actor, int] = {}

    def come(self, actor: Actor) -> list[Actor]:
        """Into the line; who has got a place by that."""
        self._line.append(actor)
        return self._serve()

    def go(self, actor: Actor) -> list[Actor]:
        """Gone, with its request; who has got a place by that."""
        if actor in self._line:
            self._line.remove(actor)
        if actor in self.place:
            self._room[self.place.pop(actor)] += actor.request_bytes
            self._stage.reserve(-actor.request_bytes / self._stage.gpu_bytes)
        return self._serve()

    def on(self, gpu: int) -> list[Actor]:
        """Whose request is counted there, in the order in which they came."""
        return [actor for actor, place in self.place.items() if place == gpu]

    def _serve(self) -> list[Actor]:
        served = []
        while self._line:
            actor = self._line[0]
            fitting = [gpu for gpu, room in enumerate(self._room) if room >= actor.request_bytes]
            if not fitting:
                break
            gpu = min(fitting, key=lambda gpu: (self._room[gpu], gpu))
            self._room[gpu] -= actor.request_bytes
            self.place[actor] = gpu
            self._stage.reserve(actor.request_bytes / self._stage.gpu_bytes)
            served.append(self._line.pop(0))
        return served
