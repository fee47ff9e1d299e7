from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from access_lists import let_nobody_write
from nls_scheduler.daemon import state_folder
from nls_scheduler.processes import whose_files

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = 65534
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "journal.db").touch(0o600)
    return folder


def test_a_folder_of_ones_own_is_fine_also_through_a_link_of_ones_own(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    (folder / "anything-else").symlink_to("/nowhere")
    state_folder.check(folder)
    state_folder.check(tmp_path / "link")


@pytest.mark.parametrize("mode", [0o707, 0o1777])
def test_a_folder_that_everybody_may_write_to_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(ValueError, match=r"others may write to .*name a folder of its own with --state-dir"):
        state_folder.check(folder)


def test_a_folder_below_one_that_everybody_may_write_to_is_refused_unless_nobody_can_take_it_away(
    folder: Path, tmp_path: Path
) -> None:
    tmp_path.chmod(0o1777)
    state_folder.check(folder)
    tmp_path.chmod(0o777)
    with pytest.raises(ValueError, match="others may write"):
        state_folder.check(folder)


@ONLY_ROOT
def test_what_is_another_users_is_refused(folder: Path) -> None:
    os.chown(folder / "journal.db", NOBODY, NOBODY)
    with pytest.raises(ValueError, match=r"journal\.db is another user's"):
        state_folder.check(folder)
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(ValueError, match="belongs to another user"):
        state_folder.check(folder)


@pytest.mark.parametrize("mode", [0o720, 0o770, 0o2775])
def test_only_its_owner_may_write_to_it(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(ValueError, match=r"others may write to .*chmod go-w"):
        state_folder.check(folder)


@ONLY_ROOT
def test_of_groups_only_roots_own_may_write_to_what_leads_to_a_folder_of_roots(folder: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    state_folder.check(folder)
    os.chown(tmp_path, 0, NOBODY)
    with pytest.raises(ValueError, match="others may write"):
        state_folder.check(folder)
    tmp_path.chmod(0o1770)
    state_folder.check(folder)


@pytest.mark.parametrize(
    ("group", "members", "users", "is_fine"),
    [
        ("alice", [], {}, True),
        ("alice", ["bob"], {}, False),
        ("alice", [], {"alice": 100, "bob": 100}, False),
        ("users", [], {"alice": 100, "root": 0}, True),
        ("users", [], {"alice": 100, "root": 0, "bob": 100}, False),
        ("users", ["alice", "bob"], {"alice": 7, "root": 0, "bob": 8}, False),
        ("users", [], {"root": 0}, False),
        (None, [], {"alice": 7, "root": 0}, True),
    ],
    ids=[
        "her own",
        "her own, with a guest",
        "her own, that is another's first",
        "one that is hers alone",
        "one that is another's first",
        "one that another is in",
        "one of users that are not listed",
        "one without a name",
    ],
)
def test_a_users_own_group_may_write_to_what_leads_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    group: str | None, members: list[str], users: dict[str, int], is_fine: bool,
) -> None:  # fmt: skip
    owner = tmp_path.stat().st_uid

    def group_of(gid: int) -> SimpleNamespace:
        if group is None:
            raise KeyError(gid)
        return SimpleNamespace(gr_name=group, gr_mem=members)

    tmp_path.chmod(0o770)
    monkeypatch.setattr(os, "geteuid", lambda: owner or 1000)
    monkeypatch.setattr("grp.getgrgid", group_of)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: SimpleNamespace(pw_name="alice" if uid else "root"))
    monkeypatch.setattr("pwd.getpwall", lambda: [SimpleNamespace(pw_name=n, pw_gid=g) for n, g in users.items()])
    monkeypatch.setattr(whose_files, "_is_ours", lambda gid, ask=whose_files._is_ours: ask(100))
    if is_fine:
        state_folder.check(folder)
    else:
        with pytest.raises(ValueError, match="others may write"):
            state_folder.check(folder)


def test_where_a_link_lies_that_leads_there_nobody_else_may_write(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    link = tmp_path / "open" / "link"
    link.symlink_to(folder)
    state_folder.check(link)
    link.parent.chmod(0o777)
    with pytest.raises(ValueError, match=r"others may write to .*open"):
        state_folder.check(link)


@pytest.mark.parametrize("place", ["state", "", "state/journal.db"])
def test_whom_an_access_control_list_names_is_another(folder: Path, tmp_path: Path, place: str) -> None:
    let_nobody_write(tmp_path / place)
    with pytest.raises(ValueError, match=r"others may write|open to others"):
        state_folder.check(folder)


def test_a_journal_that_a_group_may_write_or_a_key_that_one_may_read_is_refused(folder: Path) -> None:
    (folder / "journal.db").chmod(0o660)
    with pytest.raises(ValueError, match=r"journal\.db is another user's, or open"):
        state_folder.check(folder)
    (folder / "journal.db").chmod(0o644)
    state_folder.check(folder)
    (folder / "adoption.key").touch()
    (folder / "adoption.key").chmod(0o640)
    with pytest.raises(ValueError, match=r"adoption\.key is another user's, or open"):
        state_folder.check(folder)


@ONLY_ROOT
def test_a_link_of_another_user_is_refused(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(ValueError, match=r"the link .* is another user's"):
        state_folder.check(link)


def test_a_journal_that_is_a_link_or_open_to_others_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "journal.db").chmod(0o666)
    with pytest.raises(ValueError, match=r"journal\.db is another user's, or open"):
        state_folder.check(folder)
    (folder / "journal.db").unlink()
    (folder / "journal.db").symlink_to(tmp_path / "planted.db")
    with pytest.raises(ValueError, match="or no file"):
        state_folder.check(folder)
