"""The list of mutants cannot rot, and the tool that tries them can tell caught from survived."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mutants import SOURCES, Mutant, everything

TOOL = Path(__file__).parents[2] / "tools" / "mutants.py"
WITHOUT_RULES = {"codec", "commands", "events", "ids", "priorities", "simulator", "__init__"}
"""Modules of the core that decide nothing."""


@pytest.mark.parametrize("mutant", everything(), ids=lambda mutant: mutant.id)
def test_a_mutant_changes_one_place_that_is_there_and_breaks_a_rule_that_it_names(mutant: Mutant) -> None:
    changed = mutant.of((SOURCES / mutant.file).read_text())
    assert compile(changed, mutant.file, "exec")
    assert mutant.old != mutant.new
    assert mutant.rule.endswith(".")


def test_names_are_unique_and_every_module_of_the_core_with_rules_has_mutants() -> None:
    assert [name for name, count in Counter(m.id for m in everything()).items() if count > 1] == []
    core = {path for path in (SOURCES / "core").rglob("*.py") if path.stem not in WITHOUT_RULES}
    assert {str(path.relative_to(SOURCES)) for path in core} - {m.file for m in everything()} == set()


def test_three_mutants_are_caught() -> None:
    words = ("allowances.py: nobody has a share", "queues.py: a quota is nothing", "invariants.py: mid-cell")
    tried = subprocess.run(
        [sys.executable, TOOL, "--trust", *words], capture_output=True, text=True, timeout=100, check=False
    )
    assert tried.stdout.endswith("3 of 3 mutants are caught.\n"), tried.stdout + tried.stderr
    assert tried.returncode == 0
