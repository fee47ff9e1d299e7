"""The notebooks that are listed beside this file, and how they get here: fetched at their commits, never kept by us."""

from __future__ import annotations

import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("notebooks.toml")
FETCH_TIMEOUT_S = 300.0


class NotFetched(Exception):  # noqa: N818 - says what happened
    """A repository cannot be had at its commit; the text says why."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A public repository.

    Attributes:
        name: `owner/name` on GitHub.
        commit: the one whose notebooks are played.
        license: as its own files call it.
        files: sparse-checkout patterns of what its notebooks read.
        notebooks: their paths.
    """

    name: str
    commit: str
    license: str
    notebooks: tuple[str, ...]
    files: tuple[str, ...] = ()

    def patterns(self) -> list[str]:
        """What is fetched of it."""
        return [*(f"/{_escaped(path)}" for path in self.notebooks), *self.files]


@dataclass(frozen=True, slots=True)
class Listed:
    """One notebook."""

    repository: Repository
    path: str

    @property
    def name(self) -> str:
        """As it is shown and selected."""
        return f"{self.repository.name}: {self.path}"


def repositories(text: str) -> list[Repository]:
    """Those of a list, in its order."""
    entries = tomllib.loads(text)["repository"]
    return [
        Repository(
            entry["name"], entry["commit"], entry["license"], tuple(entry["notebooks"]), tuple(entry.get("files", ()))
        )
        for entry in entries
    ]


def fetched(repository: Repository, cache: Path) -> Path:
    """A checkout of what is needed of it, below `cache`; asks the network only for what is not there yet.

    Raises:
        NotFetched: it cannot be had.
    """
    place = cache / f"{repository.name.replace('/', '+')}@{repository.commit[:12]}"
    wanted = "\n".join(repository.patterns())
    complete = place / ".git" / "complete"
    if complete.exists() and complete.read_text() == wanted:
        return place
    place.mkdir(parents=True, exist_ok=True)
    # Only the files that are asked for are sent: some of these repositories have hundreds of megabytes of others.
    _git(place, "init", "--quiet")
    _git(place, "config", "remote.origin.url", f"https://github.com/{repository.name}")
    _git(place, "config", "remote.origin.promisor", "true")
    _git(place, "config", "remote.origin.partialclonefilter", "blob:none")
    _git(place, "sparse-checkout", "set", "--no-cone", *repository.patterns())
    _git(place, "fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", repository.commit)
    _git(place, "checkout", "--quiet", "--force", repository.commit)
    absent = [path for path in repository.notebooks if not (place / path).exists()]
    if absent:
        raise NotFetched(f"there is no {', '.join(absent)} in {repository.commit}: mend {LIST.name}")
    complete.write_text(wanted)
    return place


def _escaped(path: str) -> str:
    """For git a bracket in a pattern is not a bracket in a name."""
    return "".join(f"\\{letter}" if letter in "\\[]*?" else letter for letter in path)


def _git(place: Path, *words: str) -> None:
    try:
        subprocess.run(
            ["git", "-C", str(place), *words],
            check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=FETCH_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise NotFetched(f"git {words[0]}: {error.stderr.strip()[-300:]}") from error
    except subprocess.TimeoutExpired as error:
        raise NotFetched(f"git {words[0]} was not over within {FETCH_TIMEOUT_S:g} s") from error
