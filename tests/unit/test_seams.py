"""What a version of ipykernel or IPython lacks that we rely on without a promise is told, and nothing else is."""

from __future__ import annotations

import importlib
import re
from types import SimpleNamespace
from typing import Any

import pytest

from nls_jupyter.between import seams
from nls_jupyter.between.seams import RELOADER, SEAMS, Seam
from nls_jupyter.notebook.relay import show_once
from nls_jupyter.saved_state import ipython_session

pytestmark = pytest.mark.kernel


def owner(seam: Seam) -> Any:
    module, _, name = seam.owner.partition(":")
    return getattr(importlib.import_module(module), name)


def rename(seam: Seam, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a later version might."""
    if seam.set_in:
        monkeypatch.setattr(owner(seam), seam.set_in, lambda *_: None)
    else:
        for kind in owner(seam).__mro__:
            if seam.name in vars(kind):
                monkeypatch.setattr(kind, f"{seam.name}_renamed", vars(kind)[seam.name], raising=False)
                monkeypatch.delattr(kind, seam.name)


def test_the_installed_versions_have_all_that_we_rely_on() -> None:
    assert seams.missing() == []
    assert not RELOADER.missing


@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: seam.name)
def test_one_sentence_says_what_is_missing_and_what_does_not_work(seam: Seam, monkeypatch: pytest.MonkeyPatch) -> None:
    rename(seam, monkeypatch)
    (told,) = seams.missing()
    package = seam.module.partition(".")[0]
    assert told.startswith(f"{package} {importlib.metadata.version(package)} has no ")
    assert f"{seam.owner.partition(':')[2]}.{seam.name}, as {seam.seen_in} have: {seam.without}." in told


@pytest.mark.parametrize("what", ["module", "class"])
def test_a_module_or_class_that_is_gone_is_told_like_a_name(what: str) -> None:
    there = SEAMS[0]
    module, _, name = there.owner.partition(":")
    gone = f"{module}_renamed:{name}" if what == "module" else f"{module}:{name}Renamed"
    assert Seam(gone, there.name, there.seen_in, there.without).missing


def test_without_a_way_to_show_tracebacks_the_shell_shows_them_as_it_does() -> None:
    class Shell:
        """Of a later version."""

    shell = Shell()
    show_once(shell)
    assert vars(shell) == {}


def test_a_setting_of_autoreload_that_cannot_be_read_is_told_and_not_left_out() -> None:
    importlib.import_module("IPython.extensions.autoreload")
    of_a_later_version = SimpleNamespace(registry={"AutoreloadMagics": object()})
    with pytest.raises(NotImplementedError, match=re.escape(RELOADER.told())):
        ipython_session._autoreload(SimpleNamespace(magics_manager=of_a_later_version))
