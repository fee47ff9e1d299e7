"""From a cgroup's path to a pod, in every form in which a kubelet and a container runtime write it."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from nls_scheduler.core.model.ids import ProcessId, WorkloadId
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.workload import Workload
from nls_scheduler.daemon.peers import Peer
from nls_scheduler.kubernetes_driver import identity
from nls_scheduler.kubernetes_driver.identity import pod_uid_in, pod_uid_of, require_visible, seen_from_here
from nls_scheduler.wire.errors import Problem

UID = "0a1b2c3d-1111-2222-3333-444455556666"
UNDERSCORED = UID.replace("-", "_")
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


def test_the_innermost_pod_counts() -> None:
    outer = "99999999-1111-2222-3333-444455556666"
    assert pod_uid_in(f"0::/kubepods/pod{outer}/1/kubepods/pod{UID}/2") == UID


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


def test_in_a_cgroup_namespace_of_its_own_the_daemon_sees_itself_in_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {"mine": pod_uid_in("0::/\n"), "exec": pod_uid_in("0::/\n"), "other": pod_uid_in(f"0::/../pod{UID}/1\n")}
    monkeypatch.setattr(identity, "pod_uid_of", lambda pid: seen["mine"])
    assert identity.is_in_own_pod(seen["exec"])
    assert not identity.is_in_own_pod(seen["other"])


def test_with_the_node_s_cgroups_in_sight_it_knows_its_own_pod_by_its_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "pod_uid_of", lambda pid: UID)
    assert identity.is_in_own_pod(UID)
    assert not identity.is_in_own_pod("99999999-1111-2222-3333-444455556666")


def test_pid_0_is_refused() -> None:
    with pytest.raises(Problem, match="hostPID"):
        require_visible(Peer(1000, None, -1, administrator=False))


OTHER_UID = "99999999-1111-2222-3333-444455556666"
ROOT = Peer(0, ProcessId(7, 1), -1, administrator=True)


@pytest.mark.parametrize(
    ("own_pod", "pod", "known", "not_ready", "expected"),
    [
        (None, None, (), "no answer yet", ROOT),
        (UID, UID, (), "no answer yet", ROOT),
        (None, UID, (UID,), None, replace(ROOT, tenant=UID, administrator=False)),
        (OTHER_UID, UID, (UID,), "no answer yet", replace(ROOT, tenant=UID, administrator=False)),
        (None, UID, (OTHER_UID,), "no answer yet", 503),
        (OTHER_UID, UID, (OTHER_UID,), None, 403),
    ],
    ids=["on the node", "the daemon's own", "a pod", "known before", "not known yet", "nobody's"],
)
def test_root_in_a_pod_is_that_pod_and_nobody_s_pod_is_refused(
    own_pod: str | None,
    pod: str | None,
    known: tuple[str, ...],
    not_ready: str | None,
    expected: Peer | int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(identity, "pod_uid_of", {os.getpid(): own_pod, 7: pod}.get)
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
