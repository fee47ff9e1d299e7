"""The story on one GPU, in five acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.demo.cast import Cast, named, phase

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from nls_scheduler.demo.jupyter import Notebook, Outputs

NOTEBOOKS_QUEUE = "lab"
QUEUES = {NOTEBOOKS_QUEUE: {"quota": 0}, "train": {"quota": 1}}
_REQUEST = 0.05
# More than what 0.9 of the GPU leave, so that neither can stay beside that; with 0.8, one of them can.
_HELD = 0.12

# Every word is known beforehand, so that each bit can be looked at where it lies, in pieces that need little room.
_LOAD = """%%gpu
from nls_jupyter import xp
def expected(first, last):
    return xp.arange(first, last, dtype=xp.uint64) * xp.uint64(0x9E3779B97F4A7C15) + xp.uint64({seed})
def same():
    pieces = ((first, min(first + piece, weights.size)) for first in range(0, weights.size, piece))
    return all(bool((weights[first:last] == expected(first, last)).all()) for first, last in pieces)
piece = 2**20
total = xp.cuda.Device().mem_info[1]
weights = xp.zeros(int(total * {held}) // 8, dtype=xp.uint64)
for first in range(0, weights.size, piece):
    weights[first:first + piece] = expected(first, min(first + piece, weights.size))
view, notes = weights[10:], {{'seed': {seed}}}
print(same())"""
_LOOK = """%%gpu
view[0] += xp.uint64(1)
shared = not same()
view[0] -= xp.uint64(1)
print(same(), shared, notes)"""


class OneGpu(Cast):
    """Two notebooks on one GPU, both with far more than they are guaranteed, and whoever is owed what they use."""

    _unused_bytes = 0

    async def play(self) -> None:
        """All five acts. Raises DemoFailed, CellFailed or TimeoutError."""
        await self._two_notebooks()
        await self._a_third("0.9", NOTEBOOKS_QUEUE, "Act 2. A command is owed 0.9 of the GPU")
        await self._a_third("1.0", "train", "Act 3. Another is owed all of it, by its queue's quota")
        self._screen.act("Act 4. The GPU process of alice.ipynb is killed in the middle of a cell")
        await self._kill(self.notebooks[0])
        await self._turns()
        await self._look_at_kernels()

    async def _two_notebooks(self) -> None:
        self._screen.act(f"Act 1. Two notebooks ask for {_REQUEST} of the GPU each, limit 1.0")
        self._unused_bytes = _used_bytes(await self._client.status())
        for seed, name in enumerate(("alice.ipynb", "bob.ipynb"), 1):
            notebook = await self._open(name, str(_REQUEST))
            seen = (await notebook.run(_LOAD.format(seed=seed, held=_HELD))).stdout.split()
            self._check(seen == ["True"], f"{name} has the numbers that it made")
            await notebook.run("%gpu save")
        status = await self._until(self._both_hold, "the driver shows what both hold")
        total = status["gpus"][0]["memory_total_bytes"]
        for notebook in self.notebooks:
            used = named(status, notebook.path)["memory_used_bytes"] / total
            self._screen.check(
                f"{notebook.path} uses {used:.0%} of the GPU, and only {_REQUEST:.0%} is guaranteed to it"
            )

    async def _a_third(self, request: str, queue: str, title: str) -> None:
        """Both notebooks leave for it, what they held is free, and both come back with all of it."""
        self._screen.act(title)
        status = await self._until(self._both_hold, "both are on the GPU")
        total, held = status["gpus"][0]["memory_total_bytes"], _used_bytes(status) - self._unused_bytes
        takes = int(float(request) * total * 0.85)
        async with self._command("training", request, takes, queue):
            status = await self._until(
                lambda s: phase(s, "training") == "running" and named(s, "training")["memory_used_bytes"] >= takes,
                "training holds its memory",
            )
            left = _used_bytes(status) - self._unused_bytes - named(status, "training")["memory_used_bytes"]
            self._check(left < held / 10, f"{left} bytes are neither free nor training's")
            suspended = all(phase(status, notebook.path) == "suspended" for notebook in self.notebooks)
            self._check(suspended, "both notebooks are in host memory")
            self._screen.check("both notebooks are in host memory; by the driver nothing but training is on the GPU")
        for notebook in self.notebooks:
            outputs = await self._look(notebook)
            self._check("training" in outputs.stderr, "the notebook says for whom it left")
            self._screen.note(f"{notebook.path} reads: {outputs.stderr.strip()}")
        await self._until(self._both_hold, "both are on the GPU again")
        self._screen.check("training is over; both are back, with every variable equal in every bit")

    async def _turns(self) -> None:
        self._screen.act("Act 5. Beside a command with 0.8 of the GPU only one has room: they take turns")
        alice, bob = self.notebooks
        async with self._command("training", "0.8", 0, NOTEBOOKS_QUEUE):
            await self._until(lambda s: phase(s, "training") == "running", "training runs")
            for notebook, other in ((alice, bob), (bob, alice), (alice, bob)):
                await self._look(notebook)
                status = await self._client.status()
                self._check(phase(status, other.path) == "suspended", f"{other.path} is suspended meanwhile")
                self._screen.check(f"{notebook.path} computes with all that it held; {other.path} is in host memory")

    async def _look(self, notebook: Notebook) -> Outputs:
        """Every variable is equal in every bit, views share their base's memory, and the kernel's own are there."""
        outputs = await notebook.run(_LOOK)
        seed = self.notebooks.index(notebook) + 1
        self._check(outputs.stdout.strip() == f"True True {{'seed': {seed}}}", f"{notebook.path}: {outputs.stdout}")
        await self._look_at_kernel_variable(notebook)
        return outputs

    def _both_hold(self, status: Mapping[str, Any]) -> bool:
        least = status["gpus"][0]["memory_total_bytes"] * _HELD
        ours = [named(status, notebook.path) for notebook in self.notebooks]
        return all(w["phase"] == "running" and w["memory_used_bytes"] >= least for w in ours)


def _used_bytes(status: Mapping[str, Any]) -> int:
    used: int = status["gpus"][0]["memory_used_bytes"]
    return used
