"""What `%gpu vars` says of saves that failed, and of what is not saved on purpose."""

from __future__ import annotations

from nls_jupyter.notebook.variables import table
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
