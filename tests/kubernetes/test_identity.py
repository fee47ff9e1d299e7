"""From a cgroup's path to a pod, in every form in which a kubelet and a container runtime write it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model.ids import ProcessId, WorkloadId
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.workload import Workload
from nls_scheduler.daemon.peers import Peer
from nls_scheduler.kubernetes_driver import identity
from nls_scheduler.kubernetes_driver.identity import pod_uid_in, pod_uid_of, require_visible, seen_from_here
from nls_scheduler.wire.errors import Problem

if TYPE_CHECKING:
    from pathlib import Path

UID = "0a1b2c3d-1111-2222-3333-444455556666"
UNDERSCORED = UID.replace("-", "_")
OTHER_UID = "99999999-1111-2222-3333-444455556666"
DAEMON = "dddddddd-1111-2222-3333-444455556666"
STATIC = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/burstable/pod{UID}/4f5e",
        f"/kubepods/pod{UID}/4f5e",
        f"/kubepods/besteffort/pod{UID}",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-4f5e.scope",
        f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-4f5e.scope",
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/docker-4f5e.scope",
        f"/../../../kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-4f5e.scope",
        f"/../pod{UID}/4f5e",
        f"/docker/9c/kubelet.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/cri-containerd-1.scope",
        f"/kubepods/burstable/pod{UID}/4f5e/nested/deeper",
    ],
)
def test_every_form_names_the_pod(path: str) -> None:
    assert pod_uid_in(f"0::{path}\n") == UID
    assert pod_uid_in(f"12:pids:{path}\n4:memory:{path}\n1:name=systemd:/\n") == UID


def test_a_static_pod_has_a_uid_without_dashes() -> None:
    assert pod_uid_in(f"0::/kubepods/burstable/pod{STATIC}/1") == STATIC


@pytest.mark.parametrize(
    "own", ["", "0::/\n", f"0::/kubepods/burstable/pod{DAEMON}/1\n", "0::/system.slice/nls.service\n"]
)
def test_a_pod_that_makes_a_cgroup_named_after_another_stays_itself(own: str) -> None:
    for named in (OTHER_UID, DAEMON):
        assert pod_uid_in(f"0::/kubepods/burstable/pod{UID}/1/pod{named}/2", own) == UID
        assert pod_uid_in(f"0::/../../pod{UID}/1/kubepods/burstable/pod{named}", "0::/\n") == UID


@pytest.mark.parametrize("below", [f"kubepods/burstable/pod{DAEMON}/1", "system.slice/nls.service"])
def test_where_the_node_is_a_container_in_a_pod_that_pod_is_above_all_of_its_own(below: str) -> None:
    node = f"/kubepods/pod{OTHER_UID}/1"
    own = f"0::{node}/{below}\n"
    assert pod_uid_in(f"0::{node}/kubepods/besteffort/pod{UID}/2\n", own) == UID
    assert pod_uid_in(f"0::{node}/kubepods/besteffort/pod{UID}/2/kubepods/pod{DAEMON}/1\n", own) == UID
    assert pod_uid_in(f"0::{node}/init.scope\n", own) is None


def test_each_hierarchy_of_cgroups_has_paths_of_its_own() -> None:
    own = f"4:memory:/kubepods/pod{OTHER_UID}/1/kubepods/pod{DAEMON}/1\n1:name=systemd:/\n"
    seen = f"4:memory:/kubepods/pod{OTHER_UID}/1/kubepods/pod{UID}/1\n1:name=systemd:/\n"
    assert pod_uid_in(seen, own) == UID


@pytest.mark.parametrize("text", ["", "\n", "0", "0:", "0::", "::", "nonsense"])
def test_a_line_that_names_no_path_is_no_pod(text: str) -> None:
    assert pod_uid_in(text, text) is None


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/../..",
        "/user.slice/user-1000.slice/session-2.scope",
        "/kubepods/podless/1",
        f"/kubepods/mypod{UID}/1",
        f"/kubepods/pod{UID}x/1",
        "/kubepods/pod0a1b2c3d-1111-2222-3333-44445555/1",
        f"/pod{UID.upper()}/1",
    ],
)
def test_what_is_no_pod_is_none(path: str) -> None:
    assert pod_uid_in(f"0::{path}\n") is None


def test_a_process_that_has_ended_belongs_to_no_pod() -> None:
    assert pod_uid_of(2**22 + 1) is None


@pytest.mark.parametrize(
    ("own", "exec_", "other"),
    [
        ("/", "/", f"/../pod{UID}/1"),
        ("/", "/further", f"/../../pod{UID}/1/pod{DAEMON}"),
        (f"/kubepods/pod{DAEMON}/1", f"/kubepods/pod{DAEMON}/1", f"/kubepods/pod{UID}/1"),
        (f"/kubepods/pod{DAEMON}/1", f"/kubepods/pod{DAEMON}/2", f"/kubepods/pod{UID}/1/pod{DAEMON}"),
    ],
    ids=[
        "a cgroup namespace of its own",
        "deeper in it",
        "the node's cgroups in sight",
        "another container of its pod",
    ],
)
def test_who_is_in_the_daemon_s_own_pod_is_in_none(own: str, exec_: str, other: str, tmp_path: Path) -> None:
    for name, path in (("self", own), ("7", exec_), ("8", other)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup").write_text(f"0::{path}\n")
    assert [pod_uid_of(pid, tmp_path) for pid in (7, 8, 9)] == [None, UID, None]


def test_pid_0_is_refused() -> None:
    with pytest.raises(Problem, match="hostPID"):
        require_visible(Peer(1000, None, -1, administrator=False))


ROOT = Peer(0, ProcessId(7, 1), -1, administrator=True)


@pytest.mark.parametrize(
    ("pod", "known", "not_ready", "expected"),
    [
        (None, (), "no answer yet", ROOT),
        (UID, (UID,), None, replace(ROOT, tenant=UID, administrator=False)),
        (UID, (UID,), "no answer yet", replace(ROOT, tenant=UID, administrator=False)),
        (UID, (OTHER_UID,), "no answer yet", 503),
        (UID, (OTHER_UID,), None, 403),
    ],
    ids=["on the node, or in the daemon's own", "a pod", "known before", "not known yet", "nobody's"],
)
def test_root_in_a_pod_is_that_pod_and_nobody_s_pod_is_refused(
    pod: str | None,
    known: tuple[str, ...],
    not_ready: str | None,
    expected: Peer | int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(identity, "pod_uid_of", {7: pod}.get)
    if isinstance(expected, Peer):
        assert identity.identified(ROOT, known.__contains__, not_ready) == expected
        return
    with pytest.raises(Problem) as refused:
        identity.identified(ROOT, known.__contains__, not_ready)
    assert refused.value.status == expected
    assert not_ready is None or refused.value.detail == not_ready


def test_the_node_s_root_is_not_the_user_of_a_pod_s_root() -> None:
    spec = WorkloadSpec("book", Kind.NOTEBOOK, owner=0, request_bytes=1, limit_bytes=1, tenant=UID)
    workload = Workload(WorkloadId("w1"), spec, submitted_at=0.0)
    assert ROOT.role(workload) == "an administrator"
    assert replace(ROOT, tenant=UID).role(workload) == "its user"


def test_a_process_of_the_same_pid_namespace_keeps_its_number() -> None:
    process = ProcessId(1, 7)
    peer = Peer(0, ProcessId(os.getpid(), 1), -1, administrator=False)
    assert seen_from_here(process, peer) == process
