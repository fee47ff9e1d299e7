"""Tries every mutant of the planner (tests/mutants) against the fast tests, and names those that nothing catches.

    python tools/mutants.py                 # all; NLS_KEEP=1 also writes benchmarks/results/mutants.json
    python tools/mutants.py queues.py calm  # those whose name contains one of the words

Each mutant is one changed text in a copy of the daemon, tried in a process forked from one that has imported the test
tools. The test that caught it the last time goes first. Only a failing test counts: a mutant that cannot be imported is
reported as broken. One on which the tests never end is caught by the clock.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

ROOT = Path(__file__).resolve().parents[1]
# This file's own folder would hide the package of the same name.
sys.path[:] = [str(ROOT / "tests"), *(path for path in sys.path if Path(path) != ROOT / "tools")]

from mutants import SOURCES, Mutant, everything  # noqa: E402 - the path comes first

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
    "tests/unit/test_model.py",
    "tests/unit/test_queue_access.py",
    "tests/unit/test_queue_tree.py",
    "tests/unit/test_queue_config.py",
    "tests/unit/test_topology.py",
    "tests/properties",
)
"""The fast tests of the core."""
FIRST = {
    "core/planning/making_room/allowances.py": "properties/test_allowances",
    "core/planning/places/burst_moves.py": "stories/test_calm",
    "core/planning/claims.py": "stories/test_claims_of_a_cluster",
    "core/planning/making_room/cheapest_moves.py": "properties/test_cheapest_exchanges",
    "core/planning/homes/displacing.py": "stories/test_displacing",
    "core/planning/places/draft.py": "stories/test_reclaiming",
    "core/planning/homes/elastic_counts.py": "stories/test_several_gpus",
    "core/planning/homes/elastic.py": "stories/test_several_gpus",
    "core/planning/places/exchanges.py": "stories/test_consolidation",
    "views/explain.py": "unit/test_explain",
    "core/recording/of_the_node.py": "stories/test_evidence",
    "core/model/gangs.py": "stories/test_gangs",
    "core/model/gpu.py": "unit/test_model",
    "core/planning/homes/assign.py": "stories/test_admission_on_paper",
    "core/invariants.py": "unit/test_invariants",
    "core/planning/homes/queue_ledger.py": "unit/test_ledger",
    "requests/migration.py": "unit/test_migration",
    "core/model/state.py": "unit/test_model",
    "core/planning/making_room/packing.py": "properties/test_packing",
    "core/planning/homes/paper.py": "stories/test_admission_on_paper",
    "core/model/policy.py": "unit/test_model",
    "requests/pool_config.py": "stories/test_pools",
    "core/model/pools.py": "stories/test_pools",
    "requests/queue_access.py": "unit/test_queue_access",
    "requests/queue_config.py": "unit/test_queue_config",
    "core/model/queues.py": "unit/test_queue_tree",
    "core/planning/homes/repacking.py": "stories/test_consolidation",
    "core/planning/making_room/rooms.py": "stories/test_spreading",
    "core/step.py": "stories/test_reclaiming",
    "core/planning/places/guarantees.py": "stories/test_spreading",
    "core/model/topology.py": "unit/test_topology",
    "core/model/transitions.py": "unit/test_model",
    "core/planning/places/trims.py": "stories/test_trim_first",
    "core/planning/places/turns.py": "stories/test_turns",
    "core/planning/places/under_way.py": "stories/test_under_way",
    "core/planning/making_room/victims.py": "stories/test_reclaiming",
    "core/planning/places/failed_allocations.py": "stories/test_failed_allocations",
    "core/model/workload.py": "unit/test_model",
    "core/recording/of_a_workload.py": "stories/test_evidence",
}
"""The test file that is likely to catch a mutant of a module, until it is known which one does."""
LAST = ("test_two_departments_and_a_new_pool", "test_topology", "Claims", "QueueHistories", "Histories")
"""Those of them that take long, the longest last."""
EFFORT = "0.02"
"""Part of the examples that a property tries."""
EXAMPLES = 25
"""Of properties that say nothing about that."""
LIMIT_S = 90.0
CAUGHT, SURVIVED, BROKEN = "caught", "survived", "broken"
NO_MUTANT = "no mutant"
_OUTCOMES = {0: SURVIVED, 1: CAUGHT}
_QUIET = ("-q", "-x", "--tb=no", "--noconftest", "-p", "no:cacheprovider", "-p", "pytest_timeout")
_LEFT_OUT = (
    "--ignore=tests/properties/test_saved_state_properties.py",
    "--ignore=tests/properties/test_saved_state_types.py",
    "--ignore=tests/properties/test_hostile_objects.py",
    "-k",
    "not every_crowd",
)

Answer = tuple[int, str | None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one mutant.

    Attributes:
        outcome: CAUGHT, SURVIVED or BROKEN.
        by: the test that caught it, or what else happened.
    """

    id: str
    rule: str
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
    """A copy of the daemon, into which one mutant at a time is put."""

    def __init__(self, folder: Path) -> None:
        """`folder` is there and empty."""
        self._folder = folder
        shutil.copytree(SOURCES, folder / SOURCES.name, ignore=shutil.ignore_patterns("__pycache__"))

    def attempt(self, mutant: Mutant | None, killer: str | None) -> Answer:
        """Pytest's exit code for `mutant` (`None`: no defect) and the test that failed; `killer` goes first."""
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
        """Run `tests` in a forked process, which has LIMIT_S."""
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
        ready, _, _ = select.select([answer], [], [], LIMIT_S)
        text = os.read(answer, 65536) if ready else json.dumps((1, "the clock"))
        os.close(answer)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        code, by = json.loads(text) if text else (-1, "the tests ended without an answer")
        return code, by

    def _prepare(self) -> None:
        """Silence, the mutated daemon first on the path, and properties that cost little."""
        from hypothesis import HealthCheck, Phase, settings

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
    began = time.monotonic()
    code, by = _bench[0].attempt(mutant, killer)
    name, rule = (NO_MUTANT, "") if mutant is None else (mutant.id, mutant.rule)
    return Outcome(name, rule, _OUTCOMES.get(code, BROKEN), by, round(time.monotonic() - began, 2))


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
    path = f"tests/{FIRST[mutant.file]}.py" if mutant.file in FIRST else None
    return path if path is not None and (ROOT / path).exists() else None


def _tell(outcome: Outcome) -> None:
    by = "" if outcome.by is None else f" by {outcome.by.removeprefix('tests/')}"
    print(f"{outcome.seconds:6.1f} s  {outcome.outcome}{by}  [{outcome.id}]", flush=True)  # noqa: T201 - what it is for


def known_killers() -> dict[str, str]:
    """By the name of a mutant, the test that caught it in the kept results."""
    kept = json.loads(RESULTS.read_text())["mutants"] if RESULTS.exists() else []
    tests = {row["id"]: row["by"] for row in kept if row["outcome"] == CAUGHT and row["by"]}
    return {name: test for name, test in tests.items() if (ROOT / test.partition("::")[0]).exists()}


def _keep(found: Sequence[Outcome]) -> None:
    counted = {outcome: sum(row.outcome == outcome for row in found) for outcome in (CAUGHT, SURVIVED, BROKEN)}
    kept = {"counted": counted, "mutants": [asdict(row) for row in found]}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> int:
    """0 when every mutant was caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="only mutants whose name contains one of these")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--trust", action="store_true", help="the tests are known to pass without any mutant")
    arguments = parser.parse_args()
    words = arguments.words or [""]
    chosen = [mutant for mutant in everything() if any(word in mutant.id for word in words)]
    found = try_all(chosen, known_killers(), arguments.workers, trust=arguments.trust)
    missed = [row for row in found if row.outcome != CAUGHT]
    for row in missed:
        print(f"{row.outcome}: {row.id}\n  {row.rule}")  # noqa: T201 - what it is for
    print(f"{len(found) - len(missed)} of {len(found)} mutants are caught.")  # noqa: T201 - what it is for
    if os.environ.get("NLS_KEEP") == "1" and not arguments.words:
        _keep(found)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
