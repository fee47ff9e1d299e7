"""What can happen to one notebook: each act is tied to its progress and drawn by its chance."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from nls_scheduler.processes.guardian import descendants

if TYPE_CHECKING:
    import random

    from player import Player


STOPPED_S = (0.2, 2.5)


def hit(player: Player, pid: int | None, kind: str, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal, and count it. False: there is nobody."""
    if not pid:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    player.tell(f"{number.name} to the {kind}, {pid}")
    player.world.count(f"{number.name} {kind}")
    return True


async def stopped(player: Player, pid: int | None, kind: str, chance: random.Random) -> None:
    """SIGSTOP, and after a while SIGCONT."""
    pause_s = chance.uniform(*STOPPED_S)
    with player.world.excused(f"{kind} stopped"):
        if hit(player, pid, kind, signal.SIGSTOP):
            await asyncio.sleep(pause_s)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid or 0, signal.SIGCONT)


def standby(player: Player) -> int | None:
    """The process that stands by for a notebook."""
    for pid in descendants(player.kernel.pid) if player.kernel is not None else ():
        with contextlib.suppress(OSError):
            marked = b"NLS_STANDBY=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if marked and b"gpu_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


def copy_at_work(player: Player) -> int | None:
    """The copy of a notebook's GPU process that saves now."""
    with contextlib.suppress(OSError):
        mine = Path(f"/proc/{player.pid}/cmdline").read_bytes()
        for pid in descendants(player.kernel.pid) if player.kernel is not None else ():
            if pid != player.pid and Path(f"/proc/{pid}/cmdline").read_bytes() == mine:
                return pid
    return None


def victim(player: Player, chance: random.Random) -> tuple[int | None, str]:
    """One of the processes that make the notebook's GPU side."""
    kind = chance.choice(["GPU process", "GPU process", "guardian", "standby"])
    return {"GPU process": player.pid, "guardian": player.guardian, "standby": standby(player)}[kind], kind


# Cells


async def some_steps(player: Player, chance: random.Random) -> None:
    """Cells one after another, as Run All sends them."""
    for _ in range(chance.randint(1, 5)):
        await player.step(fails=chance.random() < 0.08)


async def kernel_cell(player: Player, chance: random.Random) -> None:
    await player.kernel_cell()


async def ctrl_c(player: Player, chance: random.Random) -> None:
    """In a cell that runs, or in one that waits for its process."""
    assert player.kernel is not None
    player.world.count("Ctrl-C")
    if chance.random() < 0.6:
        await player.step(meanwhile=player.kernel.interrupt)
        return
    await player.command("suspend")
    cell = asyncio.ensure_future(player.step())
    await asyncio.sleep(chance.uniform(0.02, 1.2))
    await player.kernel.interrupt()
    await cell


async def grandchild(player: Player, chance: random.Random) -> None:
    """A child in a session of its own, and sometimes the guardian's death."""
    await player.grandchild()
    await player.step()
    if chance.random() < 0.7:
        hit(player, player.guardian, "guardian")
    await player.step()


async def copy_dies(player: Player, chance: random.Random) -> None:
    """While a copy of the GPU process saves, it is hit, or the process itself."""
    kind, number = chance.choice(
        [("copy", signal.SIGKILL), ("copy", signal.SIGSTOP), ("GPU process", signal.SIGKILL), ("kernel", None)]
    )
    for _ in range(10 if player.heavy else 0):
        await player.step()
        if (copy := copy_at_work(player)) is None:
            continue
        player.world.count("copy at work")
        if kind == "copy" and number is signal.SIGSTOP:
            await stopped(player, copy, kind, chance)
        elif kind == "copy":
            hit(player, copy, kind)
        elif kind == "GPU process":
            hit(player, player.pid, kind)
        else:
            await player.command(chance.choice(["suspend", "save", "release", "vars"]))
        break
    await player.step()


# Orders


async def ordered(player: Player, chance: random.Random) -> None:
    """By the notebook's user."""
    words = chance.choice(["suspend", "suspend", "resume", "save", "release", "restart", "vars", "log", "trim"])
    player.world.count(f"%gpu {words}")
    await player.command(words)
    if words == "suspend" and chance.random() < 0.3:
        await player.command("resume")
    await player.step()


async def ordered_outside(player: Player, chance: random.Random) -> None:
    """From a terminal, while a cell may run."""
    words = chance.choice(["suspend", "resume", "release", "migrate", "migrate"])
    to = ("--to", str(chance.randint(0, 1))) if words == "migrate" else ()
    player.world.count(f"nls {words}")

    async def order() -> None:
        code, said = await player.world.nls(words, player.name, *to)
        player.tell(f"nls {words}: {code} {said}")

    if chance.random() < 0.4:
        await player.step(meanwhile=order)
    else:
        await player.step()
        await order()
    await player.step()


async def released_after_death(player: Player, chance: random.Random) -> None:
    """Its process dies with a save on the way, and somebody releases its place before the next cell."""
    await some_steps(player, chance)
    await player.step(at_reply=lambda: hit(player, player.pid, "GPU process"))
    if chance.random() < 0.5:
        await player.command("release")
    else:
        player.tell(f"nls release: {await player.world.nls('release', player.name)}")
    await player.step()


# Deaths


async def death_at_reply(player: Player, chance: random.Random) -> None:
    """With a save on the way."""
    for _ in range(chance.randint(0, 4)):
        await player.step()
    pid, kind = victim(player, chance)
    await player.step(at_reply=lambda: hit(player, pid, kind))
    await player.step()


async def death_in_cell(player: Player, chance: random.Random) -> None:
    await player.step()
    pid, kind = victim(player, chance)

    async def kill() -> None:
        hit(player, pid, kind)

    await player.step(meanwhile=kill)
    await player.step()


async def stop_in_cell(player: Player, chance: random.Random) -> None:
    await player.step()
    pid, kind = victim(player, chance)
    await player.step(meanwhile=lambda: stopped(player, pid, kind, chance))


async def kernel_dies(player: Player, chance: random.Random) -> None:
    """Killed while a cell runs, or stopped for a while."""
    assert player.kernel is not None
    pid = player.kernel.pid

    async def kill() -> None:
        hit(player, pid, "kernel")

    if chance.random() < 0.5:
        await player.step(meanwhile=kill)
    else:
        await player.step()
        await stopped(player, pid, "kernel", chance)
        await player.step()


# Memory


async def no_room(player: Player, chance: random.Random) -> None:
    """The arena cannot grow for a while: the system refuses it the memory."""
    await player.step()
    if player.pid is None:
        return
    player.world.count("no room for saved state")
    limits = resource.prlimit(player.pid, resource.RLIMIT_FSIZE)
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(player.pid, resource.RLIMIT_FSIZE, (chance.choice([0, 1 << 16, 4 << 20]), limits[1]))
    pid = player.pid
    await some_steps(player, chance)
    if chance.random() < 0.5:
        hit(player, player.pid, "GPU process")
    else:
        await player.command("suspend")
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    await player.step()
