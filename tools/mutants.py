"""Tries mutants of the planner (tests/mutants) against the fast tests, and shows those that nothing catches.

    python tools/mutants.py                  # every predicate, and so many generated ones as two cores try in a night
    python tools/mutants.py --seed 7         # the same ones again
    python tools/mutants.py --all            # all generated ones: days
    python tools/mutants.py queues.py _leave # only those whose name contains one of the words

Each mutant is one changed module in a copy of the daemon, tried in a process forked from one that has imported the test
tools. The test that caught it the last time goes first. Only a failing test counts: a mutant that cannot be imported is
reported as broken. One on which the tests never end is caught by the clock, which is the process's own: a busy machine
catches nothing. NLS_KEEP=1 writes benchmarks/results/mutants.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import secrets
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

ROOT = Path(__file__).resolve().parents[1]
# This file's own folder would hide the package of the same name.
sys.path[:] = [str(ROOT / "tests"), *(path for path in sys.path if Path(path) != ROOT / "tools")]

from mutants import SOURCES, Mutant  # noqa: E402 - the path comes first
from mutants.generated import drawn, generated  # noqa: E402
from mutants.predicates import PREDICATES  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
TESTS = (
    "tests/stories",
    "tests/unit/test_admission.py",
    "tests/unit/test_explain.py",
    "tests/unit/test_invariants.py",
    "tests/unit/test_ledger.py",
    "tests/unit/test_migration.py",
    "tests/unit/test_occupancy.py",
    "tests/unit/test_model.py",
    "tests/unit/test_queue_access.py",
    "tests/unit/test_queue_tree.py",
    "tests/unit/test_queue_config.py",
    "tests/unit/test_topology.py",
    "tests/properties",
)
"""The fast tests of the core."""
FIRST = {
    "admission": "stories/test_admission_on_paper",
    "allowances": "properties/test_allowances",
    "assign": "stories/test_admission_on_paper",
    "burst_moves": "stories/test_calm",
    "cheapest_moves": "properties/test_cheapest_exchanges",
    "claims": "stories/test_claims_of_a_cluster",
    "displacing": "stories/test_displacing",
    "draft": "stories/test_reclaiming",
    "elastic": "stories/test_several_gpus",
    "exchanges": "stories/test_exchanges",
    "entries": "stories/test_pools",
    "explain": "unit/test_explain",
    "failed_allocations": "stories/test_failed_allocations",
    "gangs": "stories/test_gangs",
    "gpu": "stories/test_claims_of_a_cluster",
    "guarantees": "stories/test_spreading",
    "idleness": "stories/test_cordoned",
    "invariants": "unit/test_invariants",
    "joining": "unit/test_admission",
    "make_room": "stories/test_consolidation",
    "migration": "unit/test_migration",
    "of_a_gang": "stories/test_gangs",
    "of_a_report": "stories/test_restarts",
    "of_a_workload": "stories/test_evidence",
    "of_an_end": "stories/test_evidence",
    "of_the_node": "stories/test_evidence",
    "packing": "properties/test_packing",
    "paper": "stories/test_admission_on_paper",
    "policy": "stories/test_guarantees_first",
    "pool_config": "stories/test_pools",
    "pools": "stories/test_pools",
    "queue_access": "unit/test_queue_access",
    "queue_config": "unit/test_queue_config",
    "queue_ledger": "unit/test_ledger",
    "queues": "unit/test_queue_tree",
    "repacking": "stories/test_consolidation",
    "rooms": "stories/test_spreading",
    "spreading": "stories/test_spreading",
    "state": "stories/test_restarts",
    "step": "stories/test_reclaiming",
    "topology": "unit/test_topology",
    "transitions": "unit/test_model",
    "trims": "stories/test_trim_first",
    "turns": "stories/test_turns",
    "under_way": "stories/test_under_way",
    "victims": "stories/test_reclaiming",
    "workload": "unit/test_model",
}
"""By the name of a module, the test file that is likely to catch a mutant of it, until it is known which one does."""
LAST = ("test_two_departments_and_a_new_pool", "test_topology", "Claims", "QueueHistories", "Histories")
"""Those of them that take long, the longest last."""
EFFORT = "0.02"
"""Part of the examples that a property tries."""
EXAMPLES = 25
"""Of properties that say nothing about that."""
LIMIT_S = 120
"""Of the processor's time, several times what the tests take."""
LIMIT_BYTES = 4 << 30
CAUGHT, SURVIVED, BROKEN = "caught", "survived", "broken"
CLOCK = "the clock"
NO_MUTANT = "no mutant"
_OUTCOMES = {0: SURVIVED, 1: CAUGHT}
# The suite's limit for one test is of the wall's clock.
_QUIET = ("-q", "-x", "--tb=no", "--noconftest", "-p", "no:cacheprovider", "-p", "pytest_timeout", "--timeout=0")
_LEFT_OUT = (
    "--ignore=tests/properties/test_saved_state_properties.py",
    "--ignore=tests/properties/test_saved_state_types.py",
    "--ignore=tests/properties/test_hostile_objects.py",
    "-k",
    "not every_crowd",
)

Answer = tuple[int, str | None]
"""Pytest's exit code, and the test that failed or what else happened."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one mutant.

    Attributes:
        outcome: CAUGHT, SURVIVED or BROKEN.
        by: the test that caught it, or what else happened.
        seconds: of the processor's time.
    """

    id: str
    outcome: str
    by: str | None
    seconds: float


class Watcher:
    """Puts the tests in order and notes the first that fails. A plugin of pytest's."""

    def __init__(self) -> None:
        self.failed: str | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Called by pytest."""
        items.sort(key=lambda item: next((n for n, name in enumerate(LAST, start=1) if name in item.nodeid), 0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for each phase of each test."""
        if report.failed and self.failed is None:
            self.failed = report.nodeid


class Bench:
    """A copy of the daemon, into which one mutant at a time is put.

    Attributes:
        seconds: of the processor's time for the last of them.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is there and empty."""
        self._folder = folder
        self.seconds = 0.0
        shutil.copytree(SOURCES, folder / SOURCES.name, ignore=shutil.ignore_patterns("__pycache__"))

    def attempt(self, mutant: Mutant | None, killer: str | None) -> Answer:
        """What the tests say of `mutant` (`None`: no defect); `killer` goes first."""
        self.seconds = 0.0
        if mutant is not None:
            (self._folder / SOURCES.name / mutant.file).write_text(mutant.of((SOURCES / mutant.file).read_text()))
        try:
            if killer is not None:
                answer = self._in_child([killer])
                if answer[0] == 1:
                    return answer
            return self._in_child([*_LEFT_OUT, *(test for test in TESTS if (ROOT / test).exists())])
        finally:
            if mutant is not None:
                shutil.copyfile(SOURCES / mutant.file, self._folder / SOURCES.name / mutant.file)

    def _in_child(self, tests: Sequence[str]) -> Answer:
        """Run `tests` in a forked process of its own."""
        answer, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            outcome: Answer = (-1, None)
            try:
                self._prepare()
                watcher = Watcher()
                outcome = int(pytest.main([*_QUIET, *tests], plugins=[watcher])), watcher.failed
            except BaseException as error:  # noqa: BLE001 - whatever it is, the parent tells it
                outcome = -1, repr(error)
            finally:
                os.write(told, json.dumps(outcome).encode())
                os._exit(0)
        os.close(told)
        with os.fdopen(answer) as said:
            text = said.read()
        _, status, used = os.wait4(pid, 0)
        self.seconds += used.ru_utime + used.ru_stime
        if os.WIFSIGNALED(status):
            return (1, CLOCK) if os.WTERMSIG(status) == signal.SIGKILL else (-1, f"signal {os.WTERMSIG(status)}")
        code, by = json.loads(text)
        return code, by

    def _prepare(self) -> None:
        """Limits, silence, the mutated daemon first on the path, and properties that cost little."""
        from hypothesis import HealthCheck, Phase, settings

        # With both alike the kernel kills it, whatever it does.
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
        os.chdir(ROOT)
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        # A compiled file is known by its second and its size: a mutant could be taken for another one.
        sys.dont_write_bytecode = True
        sys.path[:0] = [str(self._folder), str(ROOT / "tests"), str(ROOT)]
        os.environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "NLS_EFFORT": EFFORT}
        settings.register_profile(
            "mutants",
            max_examples=EXAMPLES,
            phases=(Phase.explicit, Phase.generate),
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        settings.load_profile("mutants")


_bench: list[Bench] = []


def _preload() -> None:
    """Import what no mutant changes, once for all the processes that are forked."""
    import hypothesis.stateful  # noqa: F401
    import tornado.web  # noqa: F401

    if any(name.partition(".")[0] == SOURCES.name for name in sys.modules):
        raise RuntimeError("the daemon is imported already: no mutant could take its place")


def _open_bench(folder: str) -> None:
    _bench.append(Bench(Path(tempfile.mkdtemp(dir=folder))))


def _try(job: tuple[Mutant | None, str | None]) -> Outcome:
    mutant, killer = job
    code, by = _bench[0].attempt(mutant, killer)
    name = NO_MUTANT if mutant is None else mutant.id
    return Outcome(name, _OUTCOMES.get(code, BROKEN), by, round(_bench[0].seconds, 2))


def try_all(mutants: Sequence[Mutant], killers: Mapping[str, str], workers: int, *, trust: bool) -> list[Outcome]:
    """What becomes of each, in their order. Raises RuntimeError when the tests fail without any mutant.

    `trust`: it is known that they pass.
    """
    _preload()
    jobs: list[tuple[Mutant | None, str | None]] = [] if trust else [(None, None)]
    jobs += [(mutant, killers.get(mutant.id, _likely(mutant))) for mutant in mutants]
    with (
        tempfile.TemporaryDirectory(prefix="nls-mutants-") as folder,
        multiprocessing.get_context("fork").Pool(workers, _open_bench, (folder,)) as pool,
    ):
        found: list[Outcome] = []
        for outcome in pool.imap(_try, jobs):
            _tell(outcome)
            if outcome.id == NO_MUTANT and outcome.outcome != SURVIVED:
                raise RuntimeError(f"without any mutant {outcome.by or 'pytest'} fails already: mend that first")
            found += [] if outcome.id == NO_MUTANT else [outcome]
    return found


def _likely(mutant: Mutant) -> str | None:
    test = FIRST.get(Path(mutant.file).stem)
    path = f"tests/{test}.py"
    return path if test is not None and (ROOT / path).exists() else None


def _tell(outcome: Outcome) -> None:
    by = "" if outcome.by is None else f" by {outcome.by.removeprefix('tests/')}"
    _say(f"{outcome.seconds:6.1f} s  {outcome.outcome}{by}  [{outcome.id}]")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def known_killers() -> dict[str, str]:
    """By the name of a mutant, the test that caught it in the kept results."""
    kept = json.loads(RESULTS.read_text())["mutants"] if RESULTS.exists() else []
    tests = {row["id"]: row["by"] for row in kept if row["outcome"] == CAUGHT and row["by"]}
    return {name: test for name, test in tests.items() if (ROOT / test.partition("::")[0]).exists()}


def _keep(found: Sequence[Outcome], seed: int) -> None:
    counted = {outcome: sum(row.outcome == outcome for row in found) for outcome in (CAUGHT, SURVIVED, BROKEN)}
    kept = {"seed": seed, "counted": counted, "mutants": [asdict(row) for row in found]}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> int:
    """0 when every mutant was caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", default=[""], help="only mutants whose name contains one of these")
    parser.add_argument("--seed", type=int, help="draw the generated ones that an earlier run drew (default: new ones)")
    parser.add_argument("--count", type=int, default=400, help="how many generated ones")
    parser.add_argument("--all", action="store_true", help="all generated ones")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--trust", action="store_true", help="the tests are known to pass without any mutant")
    options = parser.parse_args()
    by_hand, made = ([m for m in all_ if any(w in m.id for w in options.words)] for all_ in (PREDICATES, generated()))
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    chosen = [*by_hand, *drawn(made, len(made) if options.all else options.count, seed)]
    _say(f"seed {seed}: {len(by_hand)} predicates, {len(chosen) - len(by_hand)} of {len(made)} generated mutants")
    found = try_all(chosen, known_killers(), options.workers, trust=options.trust)
    for mutant, outcome in zip(chosen, found, strict=True):
        if outcome.outcome != CAUGHT:
            _say(f"\n{outcome.outcome}: {mutant.id}\n{mutant.told()}")
    caught = [row for row in found if row.outcome == CAUGHT]
    slow = sum(row.by == CLOCK for row in caught)
    _say(f"{len(caught)} of {len(found)} mutants are caught{f', {slow} of them by the clock' if slow else ''}.")
    if os.environ.get("NLS_KEEP") == "1" and options.words == [""]:
        _keep(found, seed)
    return 0 if len(caught) == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
