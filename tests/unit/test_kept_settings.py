"""Clusters of tests that overlap: the machine has its own settings again when the last one has gone."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from kept_settings import settings_kept


def test_the_last_of_several_clusters_restores_what_the_first_found(tmp_path: Path) -> None:
    setting, noted = tmp_path / "overcommit", tmp_path / "noted"
    setting.write_text("0")
    first, second = (settings_kept([setting, tmp_path / "absent"], noted) for _ in range(2))
    first.__enter__()
    setting.write_text("1")
    second.__enter__()
    first.__exit__(None, None, None)
    assert setting.read_text() == "1", "somebody is there"
    second.__exit__(None, None, None)
    assert setting.read_text() == "0"


def test_what_a_cluster_that_was_killed_has_left_goes_with_the_next_one(tmp_path: Path) -> None:
    setting, noted = tmp_path / "overcommit", tmp_path / "noted"
    setting.write_text("0")
    with settings_kept([setting], noted):
        killed = noted.read_text()
    assert noted.read_text() == ""
    setting.write_text("1")
    noted.write_text(killed)
    with settings_kept([setting], noted):
        pass
    assert setting.read_text() == "0"
