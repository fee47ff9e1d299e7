"""What can happen to a notebook and to its node: each act is tied to its progress and drawn by its chance."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from chaos_points import IN_GPU_PROCESS, OF_DAEMON, OF_KERNEL, Point
from daemon_process import NLS
from nls_scheduler.guardian import descendants

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from player import Player

    Act = Callable[[Player, random.Random], Awaitable[None]]

STOPPED_S = (0.2, 2.5)
FIRES_WITHIN_S = 3.0


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


async def server_dies(player: Player, chance: random.Random) -> None:
    """With all its kernels; or it is stopped for a while."""
    world = player.world
    if world.server_pid is None:
        return
    async with world.held():
        if chance.random() < 0.5:
            await stopped(player, world.server_pid, "server", chance)
        else:
            with world.excused("no server"):
                hit(player, world.server_pid, "server")
                await world.restart_server()
    await player.step()


# Named points


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


# The daemon


async def daemon_dies(player: Player, chance: random.Random) -> None:
    """Cells go on without it, a GPU process may die meanwhile, and its journal may be damaged when it comes back."""
    world = player.world
    async with world.held():
        with world.excused("no daemon"):
            world.count("SIGKILL daemon")
            await world.kill_daemon()
            if player.pid is not None:
                await some_steps(player, chance)
                if chance.random() < 0.6:
                    await player.step(at_reply=lambda: hit(player, player.pid, "GPU process"))
            _damage(player, chance)
            await world.start_daemon()
        world.tell("the daemon is back")
    await player.step()
    await player.step()


def _damage(player: Player, chance: random.Random) -> None:
    state = player.world.state
    journals = [path for name in ("journal.db", "journal.db-wal", "journal.db-shm") if (path := state / name).exists()]
    how = chance.choice(["none", "none", "lost", "cut off", "corrupt", "not a database"])
    if how == "none" or not journals:
        return
    player.world.count(f"journal {how}")
    match how:
        case "lost":
            for path in journals:
                path.unlink()
        case "cut off":
            path = chance.choice(journals)
            os.truncate(path, int(path.stat().st_size * chance.random()))
        case "corrupt":
            path = chance.choice(journals)
            with path.open("r+b") as file:
                for _ in range(20):
                    file.seek(chance.randrange(max(1, path.stat().st_size)))
                    file.write(chance.randbytes(16))
        case "not a database":
            journals[0].write_bytes(chance.randbytes(5000))


async def daemon_stops(player: Player, chance: random.Random) -> None:
    """SIGSTOP for a while, in the middle of a cell."""
    world = player.world
    async with world.held():
        pid = world.daemon.process.pid if world.daemon.process is not None else None
        await player.step(meanwhile=lambda: stopped(player, pid, "daemon", chance))
    await player.step()


async def socket_deleted(player: Player, chance: random.Random) -> None:
    """Somebody tidies up; an administrator restarts the daemon after a while."""
    world = player.world
    async with world.held():
        world.count("socket deleted")
        with world.excused("no socket"):
            world.daemon.socket.unlink(missing_ok=True)
            await player.step()
            await player.step()
            await world.kill_daemon()
            await world.start_daemon()
    await player.step()


# Disk and memory


async def disk_full(player: Player, chance: random.Random) -> None:
    """Where the daemon keeps its journal."""
    world = player.world
    if world.disk is not None:
        return
    async with world.held():
        world.count("full disk")
        filling = world.state / "filling"
        with contextlib.suppress(OSError), filling.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 14))
        try:
            await _life_without_disk(player, chance)
        finally:
            filling.unlink()
    await player.step()


async def disk_read_only(player: Player, chance: random.Random) -> None:
    """As after an error of the file system: the daemon dies, and starts again on what it can only read."""
    world = player.world
    if world.disk is not None:
        return
    async with world.held():
        world.count("read-only disk")
        with world.excused("no daemon"):
            await world.kill_daemon()
            _remount(player, "ro")
            try:
                await world.start_daemon()
                await _life_without_disk(player, chance)
            except AssertionError as error:
                player.tell(f"the daemon does not start: {str(error)[-300:]}")
                world.daemon.process = None
            finally:
                _remount(player, "rw")
            if world.daemon.process is not None:
                await world.kill_daemon()
            await world.start_daemon()
    await player.step()


def _remount(player: Player, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(player.world.state)], check=True, capture_output=True)


async def _life_without_disk(player: Player, chance: random.Random) -> None:
    world = player.world
    await player.step()
    await player.command(chance.choice(["suspend", "save", "release"]))
    if chance.random() < 0.5:
        hit(player, player.pid, "GPU process")
    await player.step()
    if world.daemon.process is not None and world.daemon.process.poll() is not None:
        player.tell(f"the daemon ended: {world.daemon.process.returncode}")


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


# What cells import


async def module_missing(player: Player, chance: random.Random) -> None:
    """Slow or absent while the notebook comes back."""
    flag = chance.choice(["slow", "absent"])
    world = player.world
    await player.step()
    async with world.held():
        world.count(f"{flag} import")
        (world.flags / flag).touch()
        with world.excused(f"{flag} import"):
            if chance.random() < 0.5:
                hit(player, player.pid, "GPU process")
            else:
                await player.command("suspend")
            cell = asyncio.ensure_future(player.look())
            try:
                await asyncio.wait([cell], timeout=chance.uniform(2.0, 14.0) if flag == "slow" else 30.0)
            finally:
                (world.flags / flag).unlink(missing_ok=True)
            await cell
    await player.step()
    await player.step()


# Others


async def owner(player: Player, chance: random.Random) -> None:
    """`nls run` with a whole GPU: whoever borrows there has to go."""
    world = player.world
    async with world.held():
        seconds = chance.uniform(1.0, 4.0)
        sleeping = ["--", sys.executable, "-c", f"import time; print('up', flush=True); time.sleep({seconds})"]
        world.count("nls run")
        process = subprocess.Popen(
            [*NLS, "run", "--name", "training", "--request", "1.0", "--max-wait", "30s", *sleeping],
            env=world.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        end = chance.choice(["wait", "wait", "SIGKILL", "SIGSTOP", "SIGTERM"])
        try:
            while process.poll() is None and process.stdout.read() is None:
                await player.step()
            if process.poll() is None and end != "wait":
                if end == "SIGSTOP":
                    await stopped(player, process.pid, "nls run", chance)
                else:
                    hit(player, process.pid, "nls run", signal.Signals[end])
            await some_steps(player, chance)
            await asyncio.to_thread(process.wait, 60)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    await player.step()


WEIGHTS: dict[Act, float] = {
    some_steps: 10,
    kernel_cell: 2,
    ctrl_c: 4,
    grandchild: 2,
    ordered: 6,
    ordered_outside: 6,
    released_after_death: 3,
    death_at_reply: 9,
    death_in_cell: 4,
    stop_in_cell: 3,
    kernel_dies: 1.5,
    server_dies: 0.5,
    at_a_point: 14,
    daemon_dies: 5,
    daemon_stops: 2,
    socket_deleted: 1,
    disk_full: 1.5,
    disk_read_only: 1,
    no_room: 2,
    module_missing: 3,
    owner: 4,
}

TO_THE_NODE = frozenset(
    {
        at_a_point,
        daemon_dies,
        daemon_stops,
        disk_full,
        disk_read_only,
        module_missing,
        owner,
        server_dies,
        socket_deleted,
    }
)
