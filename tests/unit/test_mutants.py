"""Mutants are what they say they are, and the tool that tries them can tell caught from survived."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from left_out import thinned
from mutants import SOURCES, Mutant
from mutants.generated import drawn, edits, generated, modules
from mutants.predicates import PREDICATES, Predicate

TOOL = Path(__file__).parents[2] / "tools" / "mutants.py"


@pytest.fixture(scope="module")
def all_generated() -> list[Mutant]:
    return generated()


@pytest.mark.parametrize("predicate", PREDICATES, ids=lambda predicate: predicate.id)
def test_a_predicate_is_a_function_that_is_there_and_no_longer_answers(predicate: Predicate) -> None:
    source = (SOURCES / predicate.file).read_text()
    changed = predicate.of(source)
    assert compile(changed, predicate.file, "exec")
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    assert predicate.rule.endswith(".")


def test_a_predicate_whose_function_is_gone_says_so() -> None:
    gone = Predicate("core/step.py", "no_such_function", "is always 0", "0", "A rule.")
    with pytest.raises(LookupError, match=r"core/step.py has no function no_such_function any more.* A rule\."):
        gone.of("x = 1")


@pytest.mark.parametrize(
    "module", thinned(modules(), 4, "mutants of a module"), ids=lambda path: str(path.relative_to(SOURCES))
)
def test_a_module_with_rules_has_mutants_that_differ_from_it_and_compile(module: Path) -> None:
    found = list(edits(ast.parse(module.read_text())))
    assert found
    for edit in found:
        back = edit.make()
        assert ast.dump(ast.Module([edit.new])) != ast.dump(ast.Module([back.new])), edit.change
        compile(ast.fix_missing_locations(ast.Module([edit.within], type_ignores=[])), edit.change, "exec")
        back.make()


def test_names_are_unique(all_generated: list[Mutant]) -> None:
    counted = Counter(mutant.id for mutant in [*PREDICATES, *all_generated])
    assert [name for name, count in counted.items() if count > 1] == []


def test_names_are_the_same_after_edits_elsewhere() -> None:
    function = "def least(a):\n    return min(a) if a else 0\n"
    before, after = (
        [edit.change for edit in edits(ast.parse(source)) if edit.function == "least"]
        for source in (function, f"def new(a):\n    return max(a) < 1\n\n\n{function}")
    )
    assert before == after == ["always 1", "never 1", "not min 1"]


def test_a_generated_mutant_is_the_one_of_its_name_and_shows_what_it_changes(all_generated: list[Mutant]) -> None:
    mutant = next(m for m in all_generated if m.id == "core/planning/making_room/victims.py: harm key dropped 1")
    changed = mutant.of((SOURCES / mutant.file).read_text())
    assert "return (workload.spec.priority, -workload.over_request_bytes," in changed
    assert mutant.told().count("\n-") == mutant.told().count("\n+") == 1


def test_the_same_seed_draws_the_same_and_another_one_others(all_generated: list[Mutant]) -> None:
    once = drawn(all_generated, 40, 1)
    assert len(once) == 40
    assert once == drawn(all_generated, 40, 1)
    assert once != drawn(all_generated, 40, 2)


def test_who_is_drawn_stays_drawn_when_others_are_gone(all_generated: list[Mutant]) -> None:
    once = drawn(all_generated, 40, 1)
    assert drawn([mutant for mutant in all_generated if mutant != once[0]], 39, 1) == once[1:]


@pytest.mark.long("mutants of a module")
def test_three_mutants_are_caught() -> None:
    words = ("Queue.quota_in is always", "has_room is always", "allowances.py: allowances other operator 1")
    tried = subprocess.run(
        [sys.executable, TOOL, "--trust", *words], capture_output=True, text=True, timeout=100, check=False
    )
    assert tried.stdout.endswith("3 of 3 mutants are caught.\n"), tried.stdout + tried.stderr
    assert tried.returncode == 0
