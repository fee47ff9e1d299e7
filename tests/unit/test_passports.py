from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nls_scheduler.daemon.passports import Passports

if TYPE_CHECKING:
    from pathlib import Path

OF = ("0123456789ab", 1000, "")


def test_the_next_daemon_knows_the_secrets_of_the_one_before(tmp_path: Path) -> None:
    secret = Passports(tmp_path / "key").secret(*OF)
    after = Passports(tmp_path / "key")
    assert after.opens(secret, *OF, forgotten=False)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("of", [("0123456789ac", 1000, ""), ("0123456789ab", 1001, ""), ("0123456789ab", 1000, "team")])
def test_a_secret_is_of_one_workload_of_one_user(tmp_path: Path, of: tuple[str, int, str]) -> None:
    Passports(tmp_path / "key")
    after = Passports(tmp_path / "key")
    assert not after.opens(after.secret(*of), *OF, forgotten=True)
    for nothing in (None, "", 5, "x" * 64, "ü"):
        assert not after.opens(nothing, *OF, forgotten=True)


@pytest.mark.parametrize("content", [b"", b"too short", b"x" * 33])
def test_without_a_key_nobody_is_asked_for_a_secret_and_the_next_daemon_asks_again(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "key").write_bytes(content)
    made = Passports(tmp_path / "key")
    assert made.opens(None, *OF, forgotten=True)
    assert not made.opens(None, *OF, forgotten=False)
    assert made.opens(made.secret(*OF), *OF, forgotten=False)
    assert not Passports(tmp_path / "key").opens(None, *OF, forgotten=True)


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
