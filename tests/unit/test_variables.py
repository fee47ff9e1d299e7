"""What `%gpu vars` says of saves that failed, and of what is not saved on purpose; and who leaves the GPU reads."""

from __future__ import annotations

from nls_jupyter.notebook import options
from nls_jupyter.notebook.variables import parse_recipe, table, told_of_leaving
from nls_jupyter.saved_state import Manifest, Saver


def manifest() -> Manifest:
    saver = Saver()
    try:
        return saver.save({"x": 1}, cell="[1]")
    finally:
        saver.close()


def test_before_the_first_save_it_says_when_that_is() -> None:
    assert table(None, {}, lambda _: None) == ("Nothing is saved yet: the variables are saved after each %%gpu cell.")


def test_a_first_save_that_failed_is_said_with_its_reason() -> None:
    assert table(None, {}, lambda _: None, "OSError: no room") == (
        "Nothing is saved: the variables could not be saved (OSError: no room)."
    )


def test_a_later_save_that_failed_is_said_beside_what_stands() -> None:
    first, *_ = table(manifest(), {}, lambda _: None, "OSError: no room").splitlines()
    assert first.startswith("Saved after cell [1], ")
    assert first.endswith("; what ran since could not be saved (OSError: no room):")
    assert "could not" not in table(manifest(), {}, lambda _: None)


def test_a_name_that_is_recomputed_is_listed_with_its_recipe() -> None:
    saver = Saver()
    saver.recipes["twice"] = "2 * x"
    try:
        saved = saver.save({"x": 1, "twice": 2}, cell="[1]")
    finally:
        saver.close()
    assert Manifest.from_json(saved.to_json()) == saved
    *_, last = table(saved, {}, lambda _: None).splitlines()
    assert last.split() == ["twice", "recomputed:", "2", "*", "x"]


def test_a_recipe_is_what_was_written_and_not_what_a_shell_makes_of_it() -> None:
    _, recipe = options.split('recompute  frame: pd.read_csv("a b.csv")["it\'s"]')
    assert parse_recipe(recipe) == ("frame", 'pd.read_csv("a b.csv")["it\'s"]')


def test_who_leaves_the_gpu_reads_what_becomes_of_the_variables() -> None:
    nothing = Manifest(memory_bytes=0, saved=(), missing=(), cell="[1]")
    assert {told_of_leaving("Released", it) for it in (None, nothing)} == {"Released; there are no variables."}
    all_saved = "Released: the variables are in host memory and come back with the next GPU cell."
    assert told_of_leaving("Released", manifest()) == all_saved
