from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.daemon.passports import Passports

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OF = ("0123456789ab", 1000, "")


def test_the_next_daemon_knows_the_secrets_of_the_one_before(tmp_path: Path) -> None:
    secret = Passports(tmp_path / "key").secret(*OF)
    after = Passports(tmp_path / "key")
    assert after.opens(secret, *OF)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("of", [("0123456789ac", 1000, ""), ("0123456789ab", 1001, ""), ("0123456789ab", 1000, "team")])
def test_a_secret_is_of_one_workload_of_one_user(tmp_path: Path, of: tuple[str, int, str]) -> None:
    Passports(tmp_path / "key")
    after = Passports(tmp_path / "key")
    assert not after.opens(after.secret(*of), *OF)
    for nothing in (None, "", 5, "x" * 64, "ü", "\ud800"):
        assert not after.opens(nothing, *OF)


def test_the_next_daemon_knows_its_marks_and_takes_any_where_the_key_was_lost(tmp_path: Path) -> None:
    mark = Passports(tmp_path / "key").mark("0123456789ab")
    after = Passports(tmp_path / "key")
    assert after.made(mark, "0123456789ab")
    assert not any(after.made(said, "0123456789ac") for said in (mark, "", "x" * 64, "\ufffd"))
    assert Passports(tmp_path / "another key").made("", "0123456789ab")


@pytest.mark.parametrize("content", [b"", b"too short", b"x" * 33])
def test_what_is_no_key_is_made_anew_once(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    made = Passports(tmp_path / "key")
    assert made.key_is_new
    assert made.opens(made.secret(*OF), *OF)
    after = Passports(tmp_path / "key")
    assert not after.key_is_new
    assert after.opens(made.secret(*OF), *OF)


def delete(key: Path) -> None:
    key.unlink()


def replace(key: Path) -> None:
    key.with_name("other").write_bytes(b"x" * 32)
    key.with_name("other").replace(key)


def a_fifo(key: Path) -> None:
    key.unlink()
    os.mkfifo(key)


@pytest.mark.parametrize("harm", [delete, replace, a_fifo])
def test_a_key_that_somebody_takes_away_is_written_again_and_told_of_once(
    tmp_path: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    passports = Passports(tmp_path / "key")
    for _ in range(2):
        passports.keep()
    assert not caplog.records
    harm(tmp_path / "key")
    for _ in range(2):
        passports.keep()
    assert [record.message for record in caplog.records] == [
        f"the key {tmp_path / 'key'} was removed or replaced, and is there again"
    ]
    assert Passports(tmp_path / "key").opens(passports.secret(*OF), *OF)


def test_a_key_that_cannot_be_written_again_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    passports = Passports(tmp_path / "key")
    (tmp_path / "key").unlink()
    (tmp_path / "key").mkdir()
    for _ in range(3):
        passports.keep()
    (told,) = caplog.records
    assert "cannot be kept" in told.message
    (tmp_path / "key").rmdir()
    passports.keep()
    assert not Passports(tmp_path / "key").key_is_new


def test_a_key_behind_a_link_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "planted").write_bytes(b"x" * 32)
    (tmp_path / "key").symlink_to(tmp_path / "planted")
    made = Passports(tmp_path / "key").secret(*OF)
    assert Passports(tmp_path / "key").secret(*OF) == made
    assert (tmp_path / "planted").read_bytes() == b"x" * 32
    assert not (tmp_path / "key").is_symlink()


def test_a_key_that_cannot_be_kept_is_one_all_the_same(tmp_path: Path) -> None:
    passports = Passports(tmp_path / "not-there" / "key")
    assert passports.secret(*OF) == passports.secret(*OF)
