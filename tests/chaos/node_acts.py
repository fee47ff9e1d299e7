"""What happens to the whole node: its daemon, its journal, its disk, its server, its modules, its other users."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from acts import hit, some_steps, stopped
from daemon_process import NLS

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from player import Player


# So long an outage lasts for a cell that cannot go on before it is over.
OUTAGE_S = 20.0


async def daemon_dies(player: Player, chance: random.Random) -> None:
    """Cells go on without it, a GPU process may die meanwhile, and its journal may be damaged when it comes back."""
    world = player.world
    async with world.held():
        with world.excused("no daemon"):
            world.count("SIGKILL daemon")
            await world.kill_daemon()
            life = await _for_a_while(_life_without_daemon(player, random.Random(chance.getrandbits(64))))
            _damage(player, chance)
            await world.start_daemon()
        world.tell("the daemon is back")
        await life
    await player.step()
    await player.step()


async def _life_without_daemon(player: Player, chance: random.Random) -> None:
    if player.pid is not None:
        await some_steps(player, chance)
        if chance.random() < 0.6:
            await player.step(at_reply=lambda: hit(player, player.pid, "GPU process"))


async def _for_a_while(life: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Begin it. Returns when it is over, or has lasted: a cell of it may wait for what comes after the outage."""
    living = asyncio.create_task(life)
    await asyncio.wait([living], timeout=OUTAGE_S)
    return living


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
            life = await _for_a_while(_life_without_disk(player, chance))
        finally:
            filling.unlink()
        with world.excused("no daemon"):
            await _back(player)
        await life
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
            life = None
            try:
                await world.start_daemon()
                life = await _for_a_while(_life_without_disk(player, chance))
            except AssertionError as error:
                player.tell(f"the daemon does not start: {str(error)[-300:]}")
                world.daemon.process = None
            finally:
                _remount(player, "rw")
            if world.daemon.process is not None:
                await world.kill_daemon()
            await world.start_daemon()
        if life is not None:
            await life
    await player.step()


async def _back(player: Player) -> None:
    """As a service manager has it."""
    process = player.world.daemon.process
    if process is not None and process.poll() is not None:
        player.tell(f"the daemon ended: {process.returncode}")
        await player.world.start_daemon()


def _remount(player: Player, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(player.world.state)], check=True, capture_output=True)


async def _life_without_disk(player: Player, chance: random.Random) -> None:
    await player.step()
    await player.command(chance.choice(["suspend", "save", "release"]))
    if chance.random() < 0.5:
        hit(player, player.pid, "GPU process")
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
