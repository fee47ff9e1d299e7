from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.daemon import state_folder

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


@ONLY_ROOT
def test_a_group_may_write_to_no_folder_of_roots(folder: Path) -> None:
    folder.chmod(0o770)
    state_folder.check(folder)
    os.chown(folder, 0, NOBODY)
    with pytest.raises(ValueError, match="others may write"):
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
