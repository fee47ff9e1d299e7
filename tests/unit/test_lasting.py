from __future__ import annotations

import asyncio
import errno
import io
import os
import re
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest.mock import AsyncMock, Mock

import pytest

from nls_jupyter.saved_state.on_volume import KeptFiles
from nls_jupyter.supervisor import keep_now, lasting
from nls_jupyter.supervisor.lasting import Lasting, _said
from nls_jupyter.supervisor.notices import NoticeLog

if TYPE_CHECKING:
    from pathlib import Path


class FullDisk(io.StringIO):
    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_the_log_has_no_room_for_is_on_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "__stderr__", FullDisk())
    assert _said("x is lost with the kernel.") == "x is lost with the kernel."
    assert capsys.readouterr().err == "[nls-jupyter] x is lost with the kernel.\n"


@pytest.mark.parametrize("grace", ["nan", "-1", "soon"])
def test_a_grace_that_is_no_time_is_refused_before_anybody_is_asked(
    grace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        keep_now.main(["--grace", grace])
    assert caught.value.code == 2
    assert f"argument --grace: '{grace}' is not a number of seconds" in capsys.readouterr().err


def of(files: KeptFiles) -> tuple[Lasting, NoticeLog, AsyncMock]:
    """One notebook's, what it tells its user, and its place."""
    log, place = NoticeLog(), AsyncMock()
    return Lasting(files, Mock(executing=False), place, log, AsyncMock()), log, place


@pytest.fixture
def files(tmp_path: Path) -> KeptFiles:
    return KeptFiles(tmp_path / "kept", "digits.ipynb")


@pytest.mark.parametrize("killed", [True, False])
def test_what_an_earlier_kernel_still_writes_is_waited_for(
    files: KeptFiles, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    note = files.begin(["a", "b"], "[6]")
    of_this_notebook, log, place = of(files)

    async def later(_: float) -> None:
        assert not log.entries
        if killed:
            note.close()
        else:
            files.end(note)

    monkeypatch.setattr(lasting.asyncio, "sleep", later)
    asyncio.run(of_this_notebook.announce())
    told = [notice.text for notice in log.entries if "it had kept a, b as of cell [6]: nothing" in notice.text]
    assert len(told) == len(log.entries) == place.until_asked.await_count == killed
    assert files.begun() is None


@pytest.mark.parametrize("is_saved", [True, False])
def test_what_is_not_kept_yet_is_named_in_one_order_however_far_the_last_save_has_come(
    files: KeptFiles, is_saved: bool
) -> None:
    of_this_notebook, _, _ = of(files)
    keeper = of_this_notebook._keeper = Mock(executing=False, last_cell="[1]")
    manifest = SimpleNamespace(variables=[SimpleNamespace(name=name) for name in ("result", "more")])
    keeper.saved = SimpleNamespace(manifest=manifest) if is_saved else None
    keeper.lineage.made_in.return_value = [] if is_saved else ["more", "result"]
    note = asyncio.run(of_this_notebook._noted())
    assert note is not None
    note.close()
    begun = files.begun()
    assert begun is not None
    assert begun.names == ("more", "result")


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("missing/kept", "No such file or directory"),
        ("file", "Not a directory"),
        ("file/kept", "Not a directory"),
        ("link", "No such file or directory"),
        ("closed/kept", "Permission denied"),
        ("kept", None),
    ],
)
def test_a_folder_in_which_nothing_can_be_kept_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, why: str | None
) -> None:
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "access", lambda place, *_, **__: place.name != "closed")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("missing")
    of_this_notebook, log, _ = of(KeptFiles(tmp_path / folder, "digits.ipynb"))
    asyncio.run(of_this_notebook.announce())
    told = [notice.text for notice in log.entries if notice.text.startswith("Nothing of this notebook can be kept")]
    if why is None:
        assert not log.entries
    else:
        assert re.search(f"{folder} cannot be used: {why}", *told)
