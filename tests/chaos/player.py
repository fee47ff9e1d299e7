"""Plays one notebook: runs its cells, remembers all that its user saw, and asks the judge."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tornado.httpclient import HTTPError
from tornado.websocket import WebSocketError

from expected_state import APPLIED, BALLAST, LOOKED, SETUP, looking, stepping
from judge import MOST_S, Entry, Finding, Judge, Verdict
from nls_scheduler.demo.jupyter import Outputs
from nls_scheduler.processes.guardian import descendants
from notebooks_of_chaos import Kernel, KernelGone
from shown import Shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from notebooks_of_chaos import Desk
    from world import World

# A cell that is still not over so long after it should have been is given up, with its kernel.
BEYOND_S = 20.0
GATE_S = 40.0
OPENED_AFTER = 8
_INTERRUPTS = ("KeyboardInterrupt", "GpuReclaimed")
_DIED = ("GpuProcessDied", "GpuEvicted")
_REFUSED = ("GpuUnavailable",)
OWN_ERROR = "ChaosError"
_RAISE = f"raise type({OWN_ERROR!r}, (Exception,), {{}})('as it should')"


class Player:
    """One notebook's user, and its judge.

    Args:
        world: the node.
        name: the notebook's.
        desk: where its kernel runs.
        auto: whether cells without `%%gpu` run in the GPU process.
        heavy: whether saves cost so much that copies of the process make them, as often as can be.

    Attributes:
        story: all that happened in it.
        pid, guardian: of the GPU process that was seen last.
    """

    def __init__(self, world: World, name: str, desk: Callable[[], Desk], *, auto: bool, heavy: bool = False) -> None:
        self.world, self.name, self.auto, self.heavy = world, name, auto, heavy
        self.judge = Judge()
        self.story: list[str] = []
        self.pid: int | None = None
        self.guardian: int | None = None
        self.cells = 0
        self.kernels = 0
        self.slowest_s = 0.0
        self._desk = desk
        self._numbers = 0
        self._gates = 0
        self._looked_at = ""
        self._to_begin = True
        self._lacks = False
        self._ghosts: list[str] = []
        self.kernel: Kernel | None = None

    @property
    def findings(self) -> list[Finding]:
        """Of this notebook."""
        return self.judge.findings

    def tell(self, text: str) -> None:
        """Something happened to this notebook."""
        self.story.append(f"{self.world.now_s:7.2f} {text}")

    def found(self, kind: str, sentence: str) -> None:
        """Something is wrong that the judge does not look for."""
        self.tell(f"FINDING {kind}: {sentence}")
        self.judge.findings.append(Finding(kind, sentence))

    # The kernel

    async def open(self) -> None:
        """A new kernel, in place of one that is gone."""
        self.judge.new_kernel()
        self._to_begin, self._lacks, self.pid, self.guardian = True, False, None, None
        for attempt in range(1, OPENED_AFTER + 1):
            await self.close()
            self.kernel = Kernel(self._desk())
            try:
                await self.kernel.open()
                break
            except (OSError, RuntimeError, HTTPError, WebSocketError, KernelGone) as error:
                self.tell(f"no kernel yet: {error!r}")
                if attempt == OPENED_AFTER:
                    raise
                await asyncio.sleep(1.0)  # whoever killed the server starts another one
        self.kernels += 1
        self.tell(f"a new kernel, {self.kernel.pid}")
        await self.request()
        if self.heavy:
            await self._run("%config GpuMagics.save_within = 0.2")
        if self.auto:
            await self.command("auto on")

    async def close(self) -> None:
        """The kernel ends in order, if it lives."""
        if self.kernel is not None:
            await self.kernel.close()
            self.kernel = None

    async def request(self) -> None:
        """As at the begin, or after the workload was given up."""
        await self.command(f"request 0.2 --limit 1.0 --name {self.name}")

    async def command(self, words: str) -> Shown:
        """`%gpu WORDS`."""
        shown = await self._run(f"%gpu {words}")
        if shown.status == "error" and shown.ename not in (*_REFUSED, "GpuUsageError", "KeyboardInterrupt"):
            self.found("unexpected error", f"%gpu {words} ended in {shown.ename}: {shown.evalue[:500]}")
        if shown.status == "ok" and words == "restart":
            self.judge.emptied()
            self._to_begin = True
        return shown

    async def kernel_cell(self) -> None:
        """A cell in the notebook's kernel, whose variables nothing of this touches."""
        first = "%%local\n" if self.auto else ""
        shown = await self._run(f"{first}here = globals().get('here', 0) + 1\nprint('here', here)")
        if shown.status == "ok":
            self.judge.kernel_counted(int(shown.outputs.stdout.split("here")[1]))

    async def count_workloads(self) -> None:
        """A notebook has one place at the daemon; another one would hold a request for nobody."""
        try:
            status = await asyncio.to_thread(self.world.daemon.status)
        except (OSError, AssertionError, IndexError):
            return  # no daemon for now
        mine = [w["id"] for w in status["workloads"] if w["name"] == self.name and w["phase"] != "suspending"]
        if len(mine) > 1 and mine != self._ghosts:
            self._ghosts = mine
            self.found("ghost workload", f"the daemon has {len(mine)} workloads of this notebook: {mine}")

    # Cells in the GPU process

    async def step(
        self,
        *,
        fails: bool = False,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
        at_reply: Callable[[], None] | None = None,
    ) -> Shown:
        """A cell that looks, changes everything, and looks again.

        Args:
            fails: it raises an error of its own after its changes.
            meanwhile: done when its changes are made and it still runs.
            at_reply: done when its reply has just come.
        """
        begins = self._to_begin
        self._numbers += 1
        number = self._numbers
        lines = [SETUP, *([BALLAST] if self.heavy else [])] if begins else [looking()]
        gate = self._gate() if meanwhile is not None else None
        lines.append(stepping(number, *([] if gate is None else [_waiting(gate)])))
        lines.append(_RAISE if fails else looking())
        shown = await self._gpu_cell("\n".join(lines), gate, meanwhile, at_reply, f"step {number}")
        self._judge_step(shown, number, begins=begins)
        await self._judge_looks(shown, begins=begins, entry=self._entry(shown, number, begins=begins))
        await self._after(shown)
        return shown

    async def look(self) -> Shown:
        """A cell that changes nothing."""
        shown = await self._gpu_cell(looking(), None, None, None, "look")
        await self._judge_looks(shown, begins=False, entry=None)
        await self._after(shown)
        return shown

    async def grandchild(self) -> None:
        """Let the GPU process have a child that hides in a session of its own, without an environment."""
        code = (
            "__import__('subprocess').Popen(['env', '-i', 'sleep', "
            f"{self.world.grandchild!r}], start_new_session=True); None"
        )
        await self._after(await self._gpu_cell(code, None, None, None, "grandchild"))

    async def _gpu_cell(
        self,
        code: str,
        gate: Path | None,
        meanwhile: Callable[[], Awaitable[None]] | None,
        at_reply: Callable[[], None] | None,
        what: str,
    ) -> Shown:
        self.cells += 1
        self.tell(f"{what} ...")
        outputs = Outputs()
        opening = None
        if gate is not None and meanwhile is not None:
            opening = asyncio.ensure_future(self._open(gate, outputs, meanwhile))
        shown = await self._run(code if self.auto else f"%%gpu\n{code}", outputs, at_reply)
        if opening is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        for look in shown.looks:
            self.pid, self.guardian = look["pid"], look["parent"]
        return shown

    def _gate(self) -> Path:
        self._gates += 1
        return self.world.directory / f"gate-{self.name}-{self._gates}"

    async def _open(self, gate: Path, outputs: Outputs, meanwhile: Callable[[], Awaitable[None]]) -> None:
        while APPLIED not in outputs.stdout:
            await asyncio.sleep(0.005)
        for line in outputs.stdout.splitlines():
            if line.startswith(LOOKED):
                look = json.loads(line.removeprefix(LOOKED))
                self.pid, self.guardian = look["pid"], look["parent"]
        try:
            await meanwhile()
        finally:
            gate.touch()

    async def _run(
        self, code: str, outputs: Outputs | None = None, at_reply: Callable[[], None] | None = None
    ) -> Shown:
        assert self.kernel is not None
        outputs = Outputs() if outputs is None else outputs
        shown, began = Shown("lost", outputs=outputs), time.monotonic()
        try:
            reply = await self._within_a_minute(code, outputs, began)
        except KernelGone:
            pass
        except TimeoutError:
            await self._given_up(code)
        else:
            if at_reply is not None:
                at_reply()
            shown.status, shown.label = reply["status"], reply.get("execution_count")
            shown.ename, shown.evalue = reply.get("ename", ""), reply.get("evalue", "")
        ended = time.monotonic()
        shown.seconds = ended - began
        excused_s = self.world.excused_s(began, ended)
        self.slowest_s = max(self.slowest_s, shown.seconds - excused_s)
        self._judge_time(shown, excused_s)
        self.judge.told(shown.sentences)
        self.tell(f"{code.splitlines()[0][:60] if code.startswith('%gpu') else ''}{shown}")
        return shown

    def _judge_time(self, shown: Shown, excused_s: float) -> None:
        before = len(self.findings)
        self.judge.took(shown.label, shown.seconds, excused_s)
        self._tell_findings(before)

    async def _within_a_minute(self, code: str, outputs: Outputs, began: float) -> dict[str, Any]:
        """The reply, however long something excuses the wait."""
        assert self.kernel is not None
        while True:
            spent_s = time.monotonic() - began
            patience_s = MOST_S + BEYOND_S + self.world.excused_s(began, time.monotonic()) - spent_s
            running = asyncio.ensure_future(self.kernel.run(code, outputs, 3600.0))
            try:
                while patience_s > 0 and not running.done():
                    await asyncio.wait([running], timeout=min(patience_s, 1.0))
                    now = time.monotonic()
                    patience_s = MOST_S + BEYOND_S + self.world.excused_s(began, now) - (now - began)
                if running.done():
                    return running.result()
                raise TimeoutError
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    async def _given_up(self, code: str) -> None:
        """A cell that does not end: what can be known of that, then its kernel goes."""
        assert self.kernel is not None
        _, explained = await self.world.nls("explain", self.name)
        _, status = await self.world.nls("status")
        self.tell(f"given up: {code.splitlines()[0][:60]}; explain: {explained}; status: {status}")
        for line in _tree(self.kernel.pid):
            self.tell(f"  {line}")
        pids = [self.kernel.pid, *descendants(self.kernel.pid)]
        for line in await self.world.stacks(pids):
            self.tell(f"    {line}")

    # Judging

    def _judge_step(self, shown: Shown, number: int, *, begins: bool) -> None:
        refused = shown.ename in _REFUSED and not shown.applied
        expected_end = shown.status in ("ok", "lost") or shown.ename in (OWN_ERROR, *_DIED, *_INTERRUPTS)
        absent = begins and shown.ename in ("ModuleNotFoundError", "ImportError")
        if not (refused or expected_end or absent):
            ended = f"cell {number} [{shown.label}] ended in {shown.ename}: {shown.evalue[:500]}"
            self.found("unexpected error", ended)

    def _entry(self, shown: Shown, number: int, *, begins: bool) -> Entry | None:
        """What has to be reckoned with after this cell."""
        if shown.status == "lost" or (not shown.applied and (shown.status == "ok" or shown.ename in _REFUSED)):
            return None
        if not shown.applied and shown.ename == OWN_ERROR:
            return None
        if shown.status == "error" and shown.ename not in (OWN_ERROR, *_DIED, *_INTERRUPTS) and not shown.applied:
            self._to_begin = True  # it failed in the middle of its changes
        label = shown.label or 0
        return Entry(number, label, begins=begins, certain=shown.applied and shown.ename not in _DIED)

    async def _judge_looks(self, shown: Shown, *, begins: bool, entry: Entry | None) -> None:
        looks = list(shown.looks)
        before = len(self.findings)
        if looks and not begins:
            await self._judge_look(looks.pop(0))
        if entry is not None:
            torn = not shown.applied and shown.ename in (*_INTERRUPTS, *_DIED)
            self.judge.ran(entry, torn=torn)
            if entry.begins and entry.certain:
                self._to_begin = False
        if looks:
            await self._judge_look(looks.pop(0))
        self._tell_findings(before)

    async def _judge_look(self, look: dict[str, Any]) -> None:
        from_log = False
        if self.judge.unsaid(look):
            await self._read_log()
            from_log = True
        verdict = self.judge.saw(look, in_log_only=from_log)
        self._looked_at = _clock()
        self._lacks = verdict is Verdict.LACKING
        if verdict is Verdict.SPOILT or not look["names"]:
            self._to_begin = True

    async def _read_log(self) -> None:
        shown = await self._run("%gpu log")
        if shown.status == "ok":
            # Each line begins with its time. What is older is about something else; at midnight all of it counts.
            since = self._looked_at if self._looked_at <= _clock() else ""
            self.judge.told([line for line in shown.outputs.stdout.splitlines() if line[:8] >= since])

    def _tell_findings(self, before: int) -> None:
        for finding in self.findings[before:]:
            self.tell(f"FINDING {finding.kind}: {finding.sentence}")

    async def _after(self, shown: Shown) -> None:
        if shown.status == "lost" or self.kernel is None or not self.kernel.alive:
            self.tell("the kernel is gone")
            await self.world.ensure_daemon()
            await self.open()
        elif shown.ename in _REFUSED:
            await self.world.ensure_daemon()
            await self.request()
        elif self._lacks and not self._to_begin:
            await self._mend()

    async def _mend(self) -> None:
        """Some name was lost and named: once its reason is gone it is back, or everything begins anew."""
        for flag in self.world.flags.iterdir():
            flag.unlink(missing_ok=True)
        self._lacks = False
        await self.command("suspend")
        shown = await self._gpu_cell(looking(), None, None, None, "look whether it is back")
        await self._judge_looks(shown, begins=False, entry=None)
        if self._lacks:
            self._to_begin, self._lacks = True, False


def _clock() -> str:
    """As `%gpu log` writes a time."""
    return time.strftime("%H:%M:%S")


def _waiting(gate: Path) -> str:
    """Lines of a cell: until the gate is open."""
    code = (
        f"import os, time\nends = time.monotonic() + {GATE_S:g}\n"
        f"while not os.path.exists({str(gate)!r}) and time.monotonic() < ends: time.sleep(0.01)"
    )
    return f"exec({code!r}, {{}})"


def _tree(root: int) -> list[str]:
    """What below a process is in which state."""
    lines = []
    for pid in [root, *descendants(root)]:
        with contextlib.suppress(OSError):
            stat, waits, command = (Path(f"/proc/{pid}/{name}").read_text() for name in ("stat", "wchan", "cmdline"))
            lines.append(f"{pid} {stat.rpartition(')')[2].split()[0]} {waits} {command.replace(chr(0), ' ')[:120]}")
    return lines
