from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from nls_jupyter.supervisor import standby_settings
from nls_jupyter.supervisor.host_memory import left_bytes, own_bytes
from nls_jupyter.supervisor.standby_settings import StandbySettings, parse_memory

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


def machine(root: Path, cgroup: str, *limits: tuple[str, str, str, int]) -> tuple[Path, Path]:
    """A /proc with 8 GiB left and a cgroup tree; `limits`: directory, limit, usage, reclaimable bytes."""
    proc, cgroups = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal:  {16 << 20} kB\nMemAvailable:  {8 << 20} kB\nHugePages_Total:  0\n")
    (proc / "self" / "cgroup").write_text(cgroup)
    v2 = cgroup.startswith("0::")
    for directory, limit, usage, reclaimable in limits:
        group = (cgroups if v2 else cgroups / "memory") / directory
        group.mkdir(parents=True, exist_ok=True)
        (group / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(limit + "\n")
        (group / ("memory.current" if v2 else "memory.usage_in_bytes")).write_text(usage + "\n")
        word = "inactive_file" if v2 else "total_inactive_file"
        (group / "memory.stat").write_text(f"anon 5\n{word} {reclaimable}\n")
    return proc, cgroups


def test_without_a_limit_the_machine_s_own_memory_counts(tmp_path: Path) -> None:
    assert left_bytes(*machine(tmp_path, "0::/user/me\n", ("user/me", "max", "5", 0))) == 8 * GIB


def test_the_narrowest_cgroup_counts_and_what_it_caches_is_free(tmp_path: Path) -> None:
    limits = (("user", str(3 * GIB), str(2 * GIB), GIB // 2), ("user/me", str(6 * GIB), str(GIB), 0))
    assert left_bytes(*machine(tmp_path, "0::/user/me\n", *limits)) == 3 * GIB // 2


def test_a_container_sees_its_limit_at_the_root(tmp_path: Path) -> None:
    place = machine(tmp_path, "0::/../../kubepods/pod1\n", (".", str(2 * GIB), str(GIB), 0))
    assert left_bytes(*place) == GIB


def test_old_cgroups_are_understood(tmp_path: Path) -> None:
    place = machine(tmp_path, "5:cpu:/x\n4:memory:/me\n", ("me", str(2 * GIB), str(GIB), 0))
    assert left_bytes(*place) == GIB


def test_this_process_has_memory_of_its_own() -> None:
    assert 1 << 20 < own_bytes(os.getpid()) < left_bytes() + (64 << 30)
    with pytest.raises(FileNotFoundError):
        own_bytes(2**22 + 1)


@pytest.mark.parametrize("name", ["x kB", "\x0bx y kB", "\x0cRssShmem: 9 kB", "\rx y kB"])
def test_what_a_process_calls_itself_is_no_memory_of_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_bytes(f"Name:\t{name}\nRssAnon:\t3 kB\n".encode())
    assert own_bytes(7, tmp_path) == 3 << 10


@pytest.mark.parametrize("name", ["m\x0be", "m\u2028e", "m\re"])
def test_a_cgroup_may_have_any_name(name: str, tmp_path: Path) -> None:
    place = machine(tmp_path, f"0::/{name}\n", (name, str(2 * GIB), str(GIB), 0))
    assert left_bytes(*place) == GIB


@pytest.mark.parametrize(
    ("memory", "left", "budget"),
    [("0.05", 20 * GIB, GIB), ("2GiB", 20 * GIB, 2 * GIB), ("0", 20 * GIB, 0), ("0.05", GIB - 1, 0)],
)
def test_the_budget_of_a_standby(memory: str, left: int, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_settings.host_memory, "left_bytes", lambda: left)
    assert StandbySettings(parse_memory(memory)).budget_bytes() == budget
