"""What a notebook has imported from its folder is there after a move, wherever its cells have gone to since then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saved_state_processes import carried, carried_on

if TYPE_CHECKING:
    from pathlib import Path

BEFORE = """
import os, sys
os.chdir({folder!r})
sys.path.insert(0, "")
sys.dont_write_bytecode = True
import helpers, src.steps, package.part
from helpers import load
kept = {{"model": helpers.Model(), "step": src.steps.Step(), "part": package.part.Part(), "score": 0.9}}
os.chdir("data")
sys.path[:] = filter(None, sys.path)
"""
AFTER = """
import importlib, os, sys
assert os.path.basename(os.getcwd()) == "data" and "" not in sys.path
import helpers, src.steps, package.part
assert type(kept["model"]) is helpers.Model and load is helpers.load and load() == "the first"
assert type(kept["step"]) is src.steps.Step and type(kept["part"]) is package.part.Part
#%%
sys.path.insert(0, os.getcwd())
assert importlib.reload(helpers).load() == "the second"
"""


def folder_with_modules(folder: Path) -> None:
    for name in ("data", "src", "package"):
        (folder / name).mkdir()
    (folder / "helpers.py").write_text("class Model: pass\ndef load(): return 'the first'\n")
    (folder / "data" / "helpers.py").write_text("def load(): return 'the second'\n")
    (folder / "src" / "steps.py").write_text("class Step: pass\n")
    (folder / "package" / "__init__.py").touch()
    (folder / "package" / "part.py").write_text("class Part: pass\n")


def test_they_come_from_their_files_and_later_imports_from_where_python_looks(tmp_path: Path) -> None:
    folder_with_modules(tmp_path)
    assert carried_on(BEFORE.format(folder=str(tmp_path)), AFTER) == []


def test_one_that_nobody_has_needed_in_between_is_found_all_the_same(tmp_path: Path) -> None:
    folder_with_modules(tmp_path)
    before = BEFORE.format(folder=str(tmp_path)) + "del helpers, src, package, load, kept\n"
    assert carried_on(before, "import helpers; assert helpers.load() == 'the first'; import package.part") == []


def test_where_its_file_is_gone_it_is_named(tmp_path: Path) -> None:
    folder_with_modules(tmp_path)
    before = BEFORE.format(folder=str(tmp_path)) + "os.remove('helpers.py'); os.remove('../helpers.py')\n"
    missing = carried_on(before, "")
    assert {"kept", "load"} <= {name for name, _ in missing}
    assert all("helpers" in reason for name, reason in missing if name in {"kept", "load"})


def test_what_it_tells_the_filters_of_warnings_when_it_is_imported_again_is_not_before_what_a_cell_told_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "quiet.py").write_text("import warnings\nwarnings.simplefilter('ignore')\ndef load(): pass\n")
    before = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport quiet, warnings\nload = quiet.load\n"
    before += "warnings.resetwarnings(); warnings.simplefilter('error')"
    assert carried(before, "assert [how for how, *_ in warnings.filters] == ['error'] and load is quiet.load") == []
