"""Acts at named points: a process is hit at one of the steps of save, restore, start, move, release."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

from chaos_points import IN_GPU_PROCESS, OF_DAEMON, OF_KERNEL, Point

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from player import Player


async def at_a_point(player: Player, chance: random.Random) -> None:
    """A process is hit at one of the steps of save, restore, start, move, release."""
    kind = chance.choices([IN_GPU_PROCESS, OF_KERNEL, OF_DAEMON], [6, 3, 2])[0]
    point = chance.choice(kind)
    if point in OF_KERNEL and point.victim == "self" and chance.random() < 0.7:
        return
    await pass_a_point(player, point, chance, signal.SIGSTOP if chance.random() < 0.15 else signal.SIGKILL)


async def pass_a_point(
    player: Player, point: Point, chance: random.Random, number: signal.Signals = signal.SIGKILL
) -> list[int] | None:
    """Arm it and do what passes there. Returns who was hit."""
    world = player.world
    async with world.held():
        await player.step()
        world.arm(point.name, point.passage, number.name)
        player.tell(f"armed: {number.name} at {point.name}")
        watching = asyncio.ensure_future(_continue(player, point, number))
        try:
            await _pass(player, point, chance)
            victims = world.fired()
            if victims is not None:
                await watching
                world.count(f"{number.name} at a point of {point.step}")
                player.tell(f"passed {point.name}: {victims}")
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            world.disarm()
    await player.step()
    await player.step()
    await player.count_workloads()
    return victims


async def _restart_daemon_if_hit(player: Player, victims: list[int], number: signal.Signals) -> None:
    process = player.world.daemon.process
    if process is not None and process.pid in victims and number is signal.SIGKILL:
        await asyncio.to_thread(process.wait)
        with player.world.excused("no daemon"):
            await player.world.start_daemon()


async def _continue(player: Player, point: Point, number: signal.Signals) -> None:
    """Whoever was stopped goes on after a moment; a daemon that was killed comes back."""
    world = player.world
    while (victims := world.fired()) is None:
        await asyncio.sleep(0.02)
    with world.excused(f"hit at {point.name}"):
        if number is signal.SIGSTOP:
            await asyncio.sleep(1.0)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        await _restart_daemon_if_hit(player, victims, number)


async def _pass(player: Player, point: Point, chance: random.Random) -> None:
    """All that leads past a point, until somebody was hit there."""
    world = player.world

    async def migrate(to: int) -> None:
        player.tell(f"nls migrate: {await world.nls('migrate', player.name, '--to', str(to))}")

    ways: list[Callable[[], Awaitable[object]]] = [player.step]
    if point.step != "save":
        ways += [lambda: player.command("suspend"), player.step]
    else:  # where a copy of the process has saved, the process itself does so when it is asked
        ways += [player.step, lambda: player.command("save")]
    if point.step == "release":
        ways += [lambda: player.command("release"), lambda: world.nls("release", player.name), player.step]
    if point.step in ("move", "suspend", "journal") or point in OF_DAEMON:
        ways += [lambda: migrate(1), lambda: migrate(0), player.step, lambda: world.nls("resume", player.name)]
    if point in OF_DAEMON:
        ways += [lambda: player.command("release"), player.step]
    for way in ways:
        await way()
        if world.fired() is not None:
            return
        if point.step == "save":
            await player.command("vars")  # waits for the save
