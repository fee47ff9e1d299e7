"""Hours of chaos in minutes: `make chaos MINUTES=10 SEED=...`.

Several notebooks live through whatever their seed draws for them; a judge for each knows what its user was told. Prints
each finding with the whole history of its notebook and of the node, and at the end what was done. A seed draws the same
acts for each notebook again; how the notebooks interleave is the machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import itertools
import random
import secrets
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE / "hooks"), str(HERE.parents[1] / "benchmarks")]

from machine import machine, report  # noqa: E402

import acts  # noqa: E402
import node_acts  # noqa: E402
from notebooks_of_chaos import OwnKernel, ServersKernel  # noqa: E402
from player import Player  # noqa: E402
from point_acts import at_a_point  # noqa: E402
from world import GONE_WITHIN_S, World  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from notebooks_of_chaos import Desk

#: Name, where the kernel runs, auto mode, and whether saves are heavy.
CAST = (
    ("alice", OwnKernel, False, True),
    ("bob", OwnKernel, True, False),
    ("carol", ServersKernel, False, False),
    ("dave", ServersKernel, True, True),
)


WEIGHTS: dict[Any, float] = {
    acts.some_steps: 10,
    acts.kernel_cell: 2,
    acts.ctrl_c: 4,
    acts.grandchild: 2,
    acts.copy_dies: 5,
    acts.ordered: 6,
    acts.ordered_outside: 6,
    acts.released_after_death: 3,
    acts.death_at_reply: 9,
    acts.death_in_cell: 4,
    acts.stop_in_cell: 3,
    acts.kernel_dies: 1.5,
    node_acts.server_dies: 0.5,
    at_a_point: 14,
    node_acts.daemon_dies: 5,
    node_acts.daemon_stops: 2,
    node_acts.socket_deleted: 1,
    node_acts.disk_full: 1.5,
    node_acts.disk_read_only: 1,
    acts.no_room: 2,
    node_acts.module_missing: 3,
    node_acts.owner: 4,
}
TO_THE_NODE = frozenset(
    {
        at_a_point,
        node_acts.daemon_dies,
        node_acts.daemon_stops,
        node_acts.disk_full,
        node_acts.disk_read_only,
        node_acts.module_missing,
        node_acts.owner,
        node_acts.server_dies,
        node_acts.socket_deleted,
    }
)


def cast(world: World, names: int) -> list[Player]:
    """The notebooks: with and without auto mode, of their own and on a server, light and heavy."""

    def desk(kind: Callable[[World, str], Desk], name: str) -> Callable[[], Desk]:
        return lambda: kind(world, name)

    return [Player(world, name, desk(kind, name), auto=auto, heavy=heavy) for name, kind, auto, heavy in CAST[:names]]


async def live(player: Player, chance: random.Random, until_s: float, weights: dict[Any, float]) -> None:
    """One notebook's life."""
    world = player.world
    await player.open()
    while world.now_s < until_s:
        act = chance.choices(list(weights), list(weights.values()))[0]
        if act in TO_THE_NODE and world.busy:
            act = acts.some_steps  # rather than wait for whoever does something to it now
        player.tell(f"--- {act.__name__}")
        # An act draws from a chance of its own: how far the one before it got changes nothing here.
        try:
            await act(player, random.Random(chance.getrandbits(64)))
        except OSError as error:  # the suite's own disk is full, or whom it was to hit is gone
            if error.errno not in {errno.ENOSPC, errno.ESRCH}:
                raise
            player.tell(f"given up: {error}")
    player.tell("--- the end")
    for flag in world.flags.iterdir():
        flag.unlink(missing_ok=True)
    await world.ensure_daemon()
    for _ in range(3):
        await player.step()
    await player.count_workloads()
    await player.kernel_cell()


async def watch_daemon(world: World) -> None:
    """A daemon that was hit at a point of somebody else comes back as with any service manager."""
    while True:
        await asyncio.sleep(0.5)
        if world.daemon.process is not None and world.daemon.process.poll() is not None:
            await world.ensure_daemon()


async def play(
    seed: int, minutes: float, notebooks: int = 4, weights: dict[Any, float] | None = None
) -> dict[str, Any]:
    """The whole campaign: what was done, what was found, and the histories."""
    world = World(standby="0.05")
    began = time.monotonic()
    broken: list[str] = []
    try:
        async with world:
            players = cast(world, notebooks)
            watching = asyncio.ensure_future(watch_daemon(world))
            until_s = world.now_s + minutes * 60
            lives = [live(p, random.Random(f"{seed} {p.name}"), until_s, weights or WEIGHTS) for p in players]
            for player, outcome in zip(players, await asyncio.gather(*lives, return_exceptions=True), strict=True):
                if isinstance(outcome, BaseException):
                    player.found("suite", f"this notebook could not be played to its end: {outcome!r}")
            watching.cancel()
            for player in players:
                await player.close()
        left = await gone(world)
        broken += tracebacks(world)
    finally:
        world.close()
    return outcome_of(world, players, left, broken, time.monotonic() - began)


async def gone(world: World) -> dict[str, list[str]]:
    """What is left after the last notebook was closed and the daemon has ended, however long one waits."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while (left := world.leftovers()) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    return left


def tracebacks(world: World) -> list[str]:
    """What the daemon and the kernels logged that nobody meant to log."""
    found = []
    for log in sorted(world.directory.glob("*.log")):
        parts = log.read_text(errors="replace").split("Traceback (most recent call last):")
        for before, after in itertools.pairwise(parts):
            # A kernel that is ended in the middle of a reply complains in ipykernel's name.
            if "/nls_jupyter/" in after or "/nls_scheduler/" in after:
                found.append(f"{log.name}: {before[-300:]}Traceback{after[:3000]}")
    return found


def outcome_of(
    world: World, players: list[Player], left: dict[str, list[str]], broken: list[str], seconds: float
) -> dict[str, Any]:
    """Figures, findings, histories."""
    findings = Counter(finding.kind for player in players for finding in player.findings)
    findings.update({f"left behind: {kind}": len(what) for kind, what in left.items()})
    if broken:
        findings["traceback in a log"] += len(broken)
    return {
        "figures": {
            "minutes": round(seconds / 60, 1),
            "notebooks": len(players),
            "cells": sum(player.cells for player in players),
            "kernels": sum(player.kernels for player in players),
            "slowest_cell_s": round(max(player.slowest_s for player in players), 1),
            "disturbances": sum(world.kills.values()),
            "by_kind": dict(sorted(world.kills.items())),
            "rollbacks_said": sum(player.judge.rollbacks_said for player in players),
            "of_these_only_in_the_log": sum(player.judge.said_in_log_only for player in players),
            "rollbacks_unsaid": sum(player.judge.rollbacks_unsaid for player in players),
            "findings": dict(sorted(findings.items())),
            "skipped": [world.disk] if world.disk else [],
        },
        "left": left,
        "broken": broken,
        "stories": {player.name: player.story for player in players if player.findings},
        "node": world.story,
    }


def told(outcome: dict[str, Any], seed: int) -> str:
    """The findings for whoever has to look into them; empty without."""
    if not outcome["figures"]["findings"]:
        return ""
    parts = [f"seed {seed}: {outcome['figures']['findings']}"]
    parts += [f"left behind, {kind}: {what}" for kind, what in outcome["left"].items()]
    parts += outcome["broken"]
    parts += [f"== {name} (seed {seed})\n" + "\n".join(story) for name, story in outcome["stories"].items()]
    parts += ["== the node\n" + "\n".join(outcome["node"])]
    return "\n\n".join(parts)


def main() -> int:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="as printed by an earlier run (default: a new one)")
    parser.add_argument("--notebooks", type=int, default=len(CAST), choices=range(1, len(CAST) + 1))
    parser.add_argument("--only", action="append", default=[], help="only this act; may be given again and again")
    options = parser.parse_args()
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    sys.stdout.write(f"seed {seed}\n")
    sys.stdout.flush()
    weights = {act: weight for act, weight in WEIGHTS.items() if not options.only or act.__name__ in options.only}
    outcome = asyncio.run(play(seed, options.minutes, options.notebooks, weights))
    sys.stdout.write(told(outcome, seed))
    report(f"chaos-{seed}", {"seed": seed, **outcome["figures"]}, machine())
    return 1 if outcome["figures"]["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
