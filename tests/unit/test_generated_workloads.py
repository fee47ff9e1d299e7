from __future__ import annotations

import itertools

import pytest

from nls_scheduler.what_if.generator.notebooks import Recipe
from nls_scheduler.what_if.generator.portrait import portrait
from nls_scheduler.what_if.generator.published import ACTIVE, Quantiles
from nls_scheduler.what_if.workload_file.checking import Checker, checked
from nls_scheduler.what_if.workload_file.rows import Session, WorkloadFileError

WEEK = 7 * 86400.0


def test_quantiles_are_what_they_were_given() -> None:
    quantiles = Quantiles({0.5: 10.0, 0.9: 40.0}, least=1.0, most=100.0)
    assert [quantiles.at(part) for part in (0.0, 0.5, 0.9, 1.0)] == pytest.approx([1.0, 10.0, 40.0, 100.0])
    assert quantiles.at(0.7) == pytest.approx(20.0)


def test_a_large_workload_has_the_published_percentiles() -> None:
    lines = {line.what: line for line in portrait(Recipe(300, WEEK).rows())}
    for what, line in lines.items():
        if what not in ("of it computing", "most computing of most open"):
            within = 0.25 if what.startswith("gap") else 0.12
            assert line.own == pytest.approx(float(line.published), rel=within), what
    assert 100 * ACTIVE[0] <= lines["of it computing"].own <= 100 * ACTIVE[1]
    assert lines["most computing of most open"].own == pytest.approx(39, abs=6)


def test_the_same_recipe_makes_the_same_rows_and_another_seed_others() -> None:
    recipe = Recipe(3, 86400.0, seed=4)
    assert list(recipe.rows()) == list(recipe.rows())
    assert list(recipe.rows()) != list(Recipe(3, 86400.0, seed=5).rows())


def test_rows_keep_the_rules_of_a_workload_file() -> None:
    recipe = Recipe(40, WEEK, commands_per_day=5.0)
    checker = Checker(80 * 2**30)
    for _ in checked(enumerate(recipe.rows(), 3), checker):
        pass
    assert checker.extent().commands > 20


def test_it_is_made_while_it_is_read() -> None:
    first = list(itertools.islice(Recipe(2, 1e9).rows(), 100))
    assert len(first) == 100
    assert any(isinstance(row, Session) for row in first)


@pytest.mark.parametrize("text", ["", "18", "x2d", "0x2d", "18x", "18x0d", "18xsoon", "9999999x1d"])
def test_a_recipe_that_is_none_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(WorkloadFileError, match=r"^\S.*\.$"):
        Recipe.parse(text)
