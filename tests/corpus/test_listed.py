"""The list of notebooks, and how they are fetched."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from listed import LIST, NotFetched, Repository, fetched, repositories

if TYPE_CHECKING:
    from pathlib import Path

NAME = "someone/notebooks"


def test_the_list_names_a_hundred_notebooks_of_many_repositories_with_commit_and_licence() -> None:
    listed = repositories(LIST.read_text(encoding="utf-8"))
    notebooks = [(it.name, path) for it in listed for path in it.notebooks]
    assert len({it.name for it in listed}) == len(listed) >= 15
    assert len(set(notebooks)) == len(notebooks) >= 100
    assert all(re.fullmatch(r"[0-9a-f]{40}", it.commit) and it.license for it in listed)
    assert all(path.endswith(".ipynb") for _, path in notebooks)


@pytest.fixture
def commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a repository on this machine that git takes for one of GitHub's."""
    origin = tmp_path / "origin"
    for path in ("a [1].ipynb", "a 1.ipynb", "data/table.csv", "huge.bin"):
        (origin / path).parent.mkdir(parents=True, exist_ok=True)
        (origin / path).write_text(path)
    settings = {
        f"url.file://{origin}.insteadOf": f"https://github.com/{NAME}",
        "uploadpack.allowAnySHA1InWant": "true",
        "uploadpack.allowFilter": "true",
        "user.name": "Someone",
        "user.email": "someone@example.org",
        "protocol.file.allow": "always",
    }
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    for key, value in settings.items():
        git(tmp_path, "config", "--file", str(tmp_path / "gitconfig"), key, value)
    git(origin, "init", "--quiet")
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "--message", "notebooks")
    return git(origin, "rev-parse", "HEAD").strip()


def git(place: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=place, check=True, capture_output=True, text=True).stdout


def test_only_what_is_listed_is_fetched(tmp_path: Path, commit: str) -> None:
    repository = Repository(NAME, commit, "MIT", ("a [1].ipynb",), ("/data/",))
    place = fetched(repository, tmp_path / "cache")
    found = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file() and ".git" not in path.parts}
    assert found == {"a [1].ipynb", "data/table.csv"}


def test_what_is_there_is_not_fetched_again(tmp_path: Path, commit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(NAME, commit, "MIT", ("a 1.ipynb",))
    place = fetched(repository, tmp_path / "cache")
    monkeypatch.setenv("PATH", "/nowhere")  # without git
    assert fetched(repository, tmp_path / "cache") == place


@pytest.mark.parametrize(("known", "path"), [(False, "a 1.ipynb"), (True, "b.ipynb")])
def test_what_cannot_be_had_is_said(tmp_path: Path, commit: str, known: bool, path: str) -> None:
    repository = Repository(NAME, commit if known else "0" * 40, "MIT", (path,))
    with pytest.raises(NotFetched, match="git fetch" if not known else "b.ipynb"):
        fetched(repository, tmp_path / "cache")
