"""What holds libraries to a limit: JAX gets its fraction, users read what cannot be followed, the table is one."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from nls_jupyter.gpu_process.allocators import Asking, Follower
from nls_jupyter.gpu_process.allocators.kept_apart import KeptApart
from nls_scheduler import doctor
from nls_scheduler.core.model.commands import StartProcess
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.simulator import GIB, SimulatedNode
from nls_scheduler.daemon.start_environment import start_environment
from nls_scheduler.requests.enforcement import ANYTHING_ELSE, JAX_FRACTION_VARIABLE, TABLE, jax_fraction
from nls_scheduler.wire.protocol import beside_users

POLICY = Path(__file__).parent.parent.parent / "docs" / "policy.md"


@pytest.mark.parametrize(
    ("limit", "context", "preallocates", "fraction"),
    [
        pytest.param(8, 1, False, "0.4375", id="a notebook's has room for the context within its limit"),
        pytest.param(16, 0, False, "1", id="a whole GPU"),
        pytest.param(32, 0, False, "1", id="never more than the GPU"),
        pytest.param(1, 1, False, None, id="no room beside the context"),
        pytest.param(16, 1, True, "0.75", id="a command with a GPU of its own has what JAX takes by itself"),
        pytest.param(8, 1, True, "0.375", id="a command with half of it has half of that"),
    ],
)
def test_jaxs_fraction_is_of_the_limit(limit: int, context: int, preallocates: bool, fraction: str | None) -> None:
    assert jax_fraction(limit * GIB, 16 * GIB, context * GIB, preallocates=preallocates) == fraction


@pytest.mark.parametrize(("kind", "fraction"), [(Kind.NOTEBOOK, "0.4375"), (Kind.COMMAND, "0.375")])
def test_a_process_is_told_jaxs_fraction_at_its_start(kind: Kind, fraction: str) -> None:
    node = SimulatedNode.of()
    workload = node.submit(kind=kind, request_bytes=4 * GIB, limit_bytes=8 * GIB)
    starts = [c for _, commands in node.history for c in commands if isinstance(c, StartProcess)]
    state = node.state
    workloads = {workload: replace(state.workloads[workload], context_bytes=GIB)}
    told = start_environment(replace(state, workloads=workloads), starts[0])
    assert told[JAX_FRACTION_VARIABLE] == fraction


def test_what_the_user_has_set_comes_before_the_daemons_fraction_but_not_before_its_mask() -> None:
    ordered = {JAX_FRACTION_VARIABLE: "0.4", "CUDA_VISIBLE_DEVICES": "GPU-a"}
    assert beside_users(ordered, {JAX_FRACTION_VARIABLE: ".9", "CUDA_VISIBLE_DEVICES": "0"}) == {
        "CUDA_VISIBLE_DEVICES": "GPU-a"
    }
    assert beside_users(ordered, {}) == ordered


def test_who_cannot_follow_is_told_once_and_only_when_less_is_allowed() -> None:
    told: list[str] = []
    follower = Follower(Asking(lambda _: None), told.append)
    follower._add(KeptApart("JAX", follower))
    for allowance in (8, 12, 8):
        follower.follow(allowance * GIB)
    assert told == []
    follower.follow(4 * GIB)
    follower.follow(3 * GIB)
    assert [sentence.partition(" cannot follow ")[0] for sentence in told] == ["JAX"]
    assert follower.trim() == 0


def test_rmm_is_one_who_cannot_follow_from_its_import_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    follower = Follower(Asking(lambda _: None), told.append)
    for name in ("torch", "cupy", "nls_jupyter.simulated_cupy", "jax", "tensorflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "rmm", ModuleType("rmm"))
    follower.install()
    follower.remove()
    for allowance in (8, 4):
        follower.follow(allowance * GIB)
    assert [sentence.partition(" cannot follow ")[0] for sentence in told] == ["RMM"]


def test_the_policys_table_is_the_one_of_the_code() -> None:
    text = POLICY.read_text()
    for row in (*TABLE, ANYTHING_ELSE):
        assert f"| {row.name} | {row.by} | {row.follows} |" in text


def test_the_doctor_says_what_holds_each_library_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package not in ("jax", "cupy-cuda13x"):
            raise metadata.PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    told = [finding.text.partition(":")[0] for finding in doctor.limits()]
    assert told == ["CuPy", "JAX"]
