"""One notebook's trial: plain twice, on the project's GPU kernel undisturbed, and disturbed at cells that are drawn."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tempfile
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import nbformat

from auto_kernel import GPU_KERNEL, install_kernelspecs
from daemon_process import DaemonProcess
from leftovers import MARK, marked_processes, wait_until_none
from players import Disturbance, Kernel, Node, Player, Run
from verdicts import Verdict, verdicts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from listed import Listed

PLAIN = "python3"
KINDS = ("suspend", "SIGKILL", "move")
UNDISTURBED = "undisturbed"
# Of so many more plain runs one may show what only seems to be the GPU process's doing.
MORE_PLAIN = 2
_SETTINGS = ("residency_per_move=0", "min_residency_s=0", "cool_down_s=0")
_GPUS = "2x16GiB"
# As a first cell, for what a notebook mentions: what it draws at random can then be compared, and has to go on where it
# was after a move.
_SEEDED = {
    "random": "__import__('random').seed(0)",
    "numpy": "__import__('numpy').random.seed(0)",
    "torch": "__import__('torch').manual_seed(0);",
}


class Unfit(Exception):  # noqa: N818 - says what it is
    """A notebook that a plain kernel does not come to the end of says nothing about ours."""


class World:
    """A daemon, a folder for everything that notebooks write, an environment for kernels. Use as a context manager."""

    def __init__(self, cache: Path) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="co-", dir="/tmp"))
        self._mark = uuid.uuid4().hex
        self._cache = cache

    def __enter__(self) -> Self:
        self.specs = install_kernelspecs(self.directory / "jupyter") / "kernels"
        _without_us(self.specs / PLAIN / "kernel.json")
        folders = {
            "HOME": "home",
            "IPYTHONDIR": "ipy",
            "JUPYTER_RUNTIME_DIR": "run",
            "XDG_RUNTIME_DIR": "xdg",
            "TMPDIR": "tmp",
        }
        own = {name: str(self.directory / folder) for name, folder in folders.items()}
        for folder in own.values():
            Path(folder).mkdir(mode=0o700)
        # Matplotlib's list of fonts takes seconds to make.
        own |= {"MPLCONFIGDIR": str(self._cache / "matplotlib"), "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
        own |= {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", MARK: self._mark}
        os.environ.update({MARK: self._mark, "JUPYTER_RUNTIME_DIR": own["JUPYTER_RUNTIME_DIR"]})
        # Who is guaranteed all it may use is moved by nobody's burst: an undisturbed run is one.
        sets = [word for setting in _SETTINGS for word in ("--set", setting)]
        self.daemon = DaemonProcess(self.directory, _GPUS, "--context-memory", "16MiB", *sets)
        self.environment = {**os.environ, **self.daemon.environment, **own, "NLS_REQUEST": "0.2", "NLS_LIMIT": "0.2"}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of kernels import the same modules
        self.daemon.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.daemon.stop()
            wait_until_none("processes", lambda: marked_processes(self._mark))
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


def _without_us(specification: Path) -> None:
    """The plain kernel is plain."""
    content = json.loads(specification.read_text())
    content["argv"] = [word for word in content["argv"] if not word.startswith("--ext")]
    specification.write_text(json.dumps(content))


def with_seeds(cells: list[str]) -> list[str]:
    """The cells, and before them one that makes their chance the same in each run, where they leave that to chance."""
    wanted = [line for name, line in _SEEDED.items() if any(name in cell for cell in cells)]
    return ["\n".join(wanted), *cells] if wanted else cells


@dataclass(slots=True)
class Outcome:
    """What one notebook showed.

    Attributes:
        verdicts: of each cell, by row of the table.
        runs: what was played, by row.
        unfit: why nothing can be said; empty otherwise.
    """

    listed: Listed
    cells: list[str] = field(default_factory=list)
    plain: list[Run] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)
    unfit: str = ""
    seconds: float = 0.0

    def counts(self, row: str) -> Counter[Verdict]:
        """Cells by verdict."""
        return Counter(self.verdicts[row])

    def same(self, row: str) -> bool:
        """Whether this run showed what plain ones show, to its end."""
        return not {Verdict.NAMED, Verdict.UNNAMED} & set(self.verdicts[row])

    def as_json(self) -> dict[str, Any]:
        """For the report: the cells that differ with both outputs."""
        return {
            "notebook": self.listed.name,
            "commit": self.listed.repository.commit,
            "unfit": self.unfit,
            "cells": len(self.cells),
            "seconds": round(self.seconds, 1),
            "rows": {row: self._row(row) for row in self.verdicts},
        }

    def _row(self, row: str) -> dict[str, Any]:
        run = self.runs[row]
        return {
            "counts": {verdict.value: count for verdict, count in self.counts(row).items()},
            "done": run.done,
            "told": [f"cell {told.at}: {told.text}" for told in run.told],
            "log": run.log.splitlines(),
            "again": sorted(run.again),
            "cells": [
                self._cell(row, place)
                for place, verdict in enumerate(self.verdicts[row])
                if verdict is not Verdict.SAME
            ],
        }

    def _cell(self, row: str, place: int) -> dict[str, Any]:
        verdict, plain, seen = self.verdicts[row][place], self.plain[0].shown[place], self.runs[row].shown[place]
        if verdict is Verdict.VARIES:
            others = [run.shown[place] for run in self.plain[1:]]
            return {"cell": place, "verdict": verdict.value, "among plain": [plain.excerpts(other) for other in others]}
        return {
            "cell": place,
            "verdict": verdict.value,
            "begins to differ": plain.excerpts(seen),
            "source": self.cells[place][:3000],
            "plain": plain.as_json(),
            "seen": seen.as_json(),
        }


class Trial:
    """One notebook's."""

    def __init__(self, world: World, listed: Listed, checkout: Path, seed: int, timeout_s: float, every: bool) -> None:
        self._world, self._listed, self._checkout, self._timeout_s = world, listed, checkout, timeout_s
        self._chance = random.Random(f"{seed} {listed.name}")
        self._every = every
        self._name = uuid.uuid4().hex[:12]
        self._outcome = Outcome(listed)

    async def run(self) -> Outcome:
        """All of it."""
        outcome = self._outcome
        notebook = nbformat.read(self._checkout / self._listed.path, as_version=4)
        outcome.cells = with_seeds([c.source for c in notebook.cells if c.cell_type == "code" and c.source.strip()])
        try:
            await self._plain()
            await self._plain()
        except Unfit as why:
            outcome.unfit = str(why)
            return outcome
        await self._row(UNDISTURBED, ())
        drawn = self._chance.choice(KINDS)
        for kind in KINDS:
            disturbances = self._draw(kind)
            if self._every or kind == drawn:
                await self._row(kind, disturbances)
        return outcome

    def _draw(self, kind: str) -> list[Disturbance]:
        """One or two cells in the middle, after or in which it happens."""
        count = len(self._outcome.cells)
        middle = range(count // 5, max(count // 5 + 1, count * 4 // 5))
        places = self._chance.sample(middle, min(len(middle), self._chance.choice([1, 2])))
        within = [self._chance.choice([None, self._chance.uniform(0.2, 0.8)]) for _ in places]
        return [Disturbance(kind, place, part) for place, part in zip(sorted(places), within, strict=True)]

    async def _plain(self, repeats: Mapping[int, Sequence[int]] | None = None) -> None:
        run = await self._play(PLAIN, repeats=repeats)
        stopped = [s.error for s in run.shown if s.error is not None and s.error[0] in ("KernelGone", "CellTimeout")]
        if stopped:
            raise Unfit(f"in a plain kernel: {stopped[0][0]}, {stopped[0][1]}")
        self._outcome.plain.append(run)

    async def _row(self, row: str, disturbances: Sequence[Disturbance]) -> None:
        """A cell that is run again may do something again, as append to a file: so it does in more plain runs."""
        self._outcome.runs[row] = await self._play(GPU_KERNEL, disturbances)
        self._judge(row)
        for _ in range(MORE_PLAIN):
            if self._outcome.same(row):
                return
            with contextlib.suppress(Unfit):
                await self._plain(self._outcome.runs[row].repeats)
            for judged in self._outcome.verdicts:
                self._judge(judged)

    def _judge(self, row: str) -> None:
        outcome, run = self._outcome, self._outcome.runs[row]
        plain = [plain.shown for plain in outcome.plain]
        outcome.verdicts[row] = verdicts(outcome.cells, plain, run.shown, run.told, run.again)

    async def _play(
        self,
        kernel_name: str,
        disturbances: Sequence[Disturbance] = (),
        repeats: Mapping[int, Sequence[int]] | None = None,
    ) -> Run:
        """Always in the same folder, as it was."""
        world = self._world
        place = world.directory / self._name
        shutil.copytree(self._checkout, place, ignore=shutil.ignore_patterns(".git"))
        # The daemon knows each run by a name of its own.
        name = f"{self._name}-{uuid.uuid4().hex[:4]}"
        environment = {**world.environment, "JPY_SESSION_NAME": name}
        folder = (place / self._listed.path).parent
        node = Node(world.daemon, name) if kernel_name == GPU_KERNEL else None
        seconds = self._outcome.plain[0].seconds if self._outcome.plain else ()
        try:
            log = world.directory / f"{self._name}.log"
            async with Kernel(kernel_name, world.specs, folder, environment, log) as kernel:
                player = Player(kernel, self._outcome.cells, self._timeout_s, disturbances, node, seconds, repeats)
                return await player.play()
        finally:
            shutil.rmtree(place, ignore_errors=True)
