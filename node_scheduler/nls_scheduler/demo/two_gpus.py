"""The story on two GPUs, in five acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nls_scheduler.demo.cast import Cast, named, phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.demo.jupyter import Notebook, Outputs

_LOAD = """%%gpu
import os
from nls_jupyter import xp
total = xp.cuda.Device().mem_info[1]
weights = xp.arange(min(total // 32, 2**25), dtype=xp.float32)
view = weights[10:]"""
_BURST = """%%gpu
burst = xp.ones(int(total * 0.7) // 4, dtype=xp.float32)
used = total - xp.cuda.Device().mem_info[0]
del burst
xp.get_default_memory_pool().free_all_blocks()
print(used / total)"""
_LOOK = """%%gpu
view[0] = {number}
print(float(weights[10]), float(weights[-1]))"""
_HOLD = """%%gpu
held = xp.ones(int(total * 0.55) // 4, dtype=xp.float32)
print(float(held[-1]))"""


class TwoGpus(Cast):
    """Two notebooks with a GPU each, though at home on one, and whoever comes third."""

    _number = 0

    async def play(self) -> None:
        """All five acts. Raises DemoFailed, CellFailed or TimeoutError."""
        await self._two_notebooks()
        await self._a_third("1.0", "Act 2. A third workload needs a whole GPU")
        await self._a_third("0.6", "Act 3. A third workload needs 0.6 of a GPU")
        await self._a_kill()
        await self._turns()
        await self._look_at_kernels()

    async def _two_notebooks(self) -> None:
        self._screen.act("Act 1. Two notebooks ask for half a GPU each, limit 1.0")
        for name in ("alice.ipynb", "bob.ipynb"):
            notebook = await self._open(name, "0.5")
            await notebook.run(_LOAD)
        status = await self._until(self._spread, "the notebooks are on different GPUs")
        homes = {tuple(w["home"]) for w in status["workloads"]}
        self._check(len(homes) == 1, "on paper both have their home on one GPU")
        self._screen.check("on paper both have their home on one GPU; in fact each has a GPU to itself")
        for notebook in self.notebooks:
            used = float((await notebook.run(_BURST)).stdout)
            # What it holds now is known at once, not when it has been idle for a moment: it comes back by itself then.
            await notebook.run("%gpu save")
            self._check(used > 0.5, f"{notebook.path} used {used:.2f} of a GPU")
            self._screen.check(f"{notebook.path} burst to {used:.0%} of a GPU, and only 50% is guaranteed to it")

    async def _a_third(self, request: str, title: str) -> None:
        self._screen.act(title)
        status: Mapping[str, Any] = await self._client.status()
        before = {w["name"]: w["current"] for w in status["workloads"]}
        total = status["gpus"][0]["memory_total_bytes"]
        async with self._command("training", request, int(float(request) * total * 0.8)):
            status = await self._until(lambda s: phase(s, "training") == "running", "training runs")
            training = named(status, "training")
            sharing = [w["name"] for w in status["workloads"] if w["current"] == training["current"]]
            self._check(sharing == ["training"], f"training shares its GPU with {sharing}")
            self._screen.check("training has its GPU to itself")
            await self._until(lambda s: all(phase(s, n.path) == "running" for n in self.notebooks), "both run again")
            status = await self._client.status()
            moved = [n for n in self.notebooks if named(status, n.path)["current"] != before[n.path]]
            self._check(len(moved) == 1, f"{len(moved)} notebooks moved")
            outputs = await self._look(moved[0])
            self._check("training" in outputs.stderr, "the notebook says for whom it moved")
            self._screen.note(f"{moved[0].path} reads: {outputs.stderr.strip()}")
        await self._until(self._spread, "the notebooks spread again")
        self._screen.check("training is over; the notebooks have spread again")

    async def _a_kill(self) -> None:
        self._screen.act("Act 4. The GPU process of alice.ipynb is killed in the middle of a cell")
        await self._kill(self.notebooks[0])

    async def _turns(self) -> None:
        self._screen.act("Act 5. What both hold does not fit on one GPU: they take turns")
        alice, bob = self.notebooks
        await alice.run(_HOLD)
        await bob.run(_HOLD)
        async with self._command("training", "1.0", 0):
            await self._until(lambda s: phase(s, "training") == "running", "training runs")
            for notebook, other in ((alice, bob), (bob, alice), (alice, bob)):
                outputs = await notebook.run(_HOLD.splitlines()[0] + "\nprint(float(held.min()), float(held.max()))")
                self._check(outputs.stdout.split() == ["1.0", "1.0"], f"{notebook.path} has what it held")
                status = await self._client.status()
                self._check(phase(status, other.path) == "suspended", f"{other.path} is suspended meanwhile")
                self._screen.check(f"{notebook.path} computes with all that it held; {other.path} is in host memory")
        await bob.run("%%gpu\ndel held")

    async def _look(self, notebook: Notebook) -> Outputs:
        """Variables and the view between them are there, in the GPU process and in the kernel."""
        self._number += 1
        outputs = await notebook.run(_LOOK.format(number=self._number))
        seen, last = outputs.stdout.split()
        self._check(float(seen) == self._number, "the view still shares the memory of its base")
        self._check(float(last) > 0, "the weights are there")
        await self._look_at_kernel_variable(notebook)
        return outputs

    def _spread(self, status: Mapping[str, Any]) -> bool:
        ours = [w for w in status["workloads"] if w["name"] in self._kernels]
        gpus = {tuple(w["current"]) for w in ours if w["phase"] == "running"}
        return len(gpus) == len(self._kernels) == len(ours)
