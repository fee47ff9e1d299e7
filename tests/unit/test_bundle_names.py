"""Whatever workloads, queues, gangs and users are called: a bundle is made, can be replayed, and holds no such name."""

from __future__ import annotations

import json
import re
import zipfile
from contextlib import closing
from dataclasses import fields, replace
from enum import Enum

import pytest

from nls_scheduler.bundle.contents import SYSTEM_STATE, Parts
from nls_scheduler.bundle.masking import Mask
from nls_scheduler.cli import main
from nls_scheduler.core.model import codec
from nls_scheduler.core.model.codec import decode, encode
from nls_scheduler.core.model.events import GpusDiscovered
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.simulator import SimulatedNode
from nls_scheduler.core.step import step
from nls_scheduler.daemon.config import NlsScheduler
from nls_scheduler.daemon.journal import Journal
from nls_scheduler.views.entries import entry_view
from nls_scheduler.views.history import Recorder
from nls_scheduler.views.status import node_view
from nls_scheduler.wire import locate


def words_of_ours():
    """The names of all types, fields and settings that a bundle has, and the words of all enumerations."""
    words = {"map", "set", "items", *NlsScheduler.class_trait_names(config=True)}
    for kind in codec._KINDS.values():
        members = kind if issubclass(kind, Enum) else ()
        words |= {kind.__name__, *(member.value for member in members)}
        words |= set() if issubclass(kind, Enum) else {field.name for field in fields(kind)}
    return sorted(words)


WORDS = words_of_ours()


def node_of(name):
    """A node where everything that has a name has this one."""
    queue, pool = Queue(name, quota={name: 1.0}, limit={"default": None}), Pool(name, gpus=("0",))
    node = SimulatedNode.of(policy=Policy(queues=(queue,), pools=(pool,)))
    node.submit(name=name, queue=name, gang=name, gang_size=2, pools=(name,))
    node.submit(name=name, queue=name, pools=(name,))
    node.settle()
    return node


def values(key, json_like):
    """Whatever stands under `key`, at any depth."""
    if isinstance(json_like, dict):
        yield from (item for name, item in json_like.items() if name == key)
        json_like = list(json_like.values())
    if isinstance(json_like, list):
        for item in json_like:
            yield from values(key, item)


def test_a_state_stays_one_whatever_is_called_like_a_field_of_it() -> None:
    state = node_of("q7").state
    written = json.dumps(encode(state))
    for word in WORDS:
        encoded, mask = json.loads(written.replace('"q7"', f'"{word}"')), Mask()
        mask.learn_from(encoded)
        masked = decode(mask.value(encoded))
        (other,) = {workload.spec.name for workload in masked.workloads.values()}
        (queue,), (pool,) = masked.policy.queues, masked.policy.pools
        assert other != word
        assert (queue.name, pool.name, set(queue.quota)) == (other, other, {other})
        assert [w.phase for w in masked.workloads.values()] == [w.phase for w in state.workloads.values()]


def test_one_letter_says_nothing_of_anybody_and_is_the_same_wherever_it_stands() -> None:
    state, mask = node_of("x").state, Mask()
    mask.learn_from(encode(state))
    masked = decode(mask.value(encode(state)))
    (queue,), (pool,) = masked.policy.queues, masked.policy.pools
    assert {workload.spec.pools for workload in masked.workloads.values()} == {(pool.name,)}
    assert set(queue.quota) == {pool.name}
    assert {workload.spec.queue for workload in masked.workloads.values()} == {queue.name}


@pytest.mark.parametrize("name", ["9kim", "2026ab", "3x5bob", "2024-T", "deadbeefcafe"])
def test_a_name_that_reads_as_a_size_a_time_or_an_id_is_replaced_as_any_other(name) -> None:
    state, mask = node_of(name).state, Mask()
    mask.learn_from(encode(state))
    masked = decode(mask.value(encode(state)))
    assert name not in repr(masked)
    assert masked.plan.keys() == state.plan.keys()
    assert re.fullmatch("name-[0-9a-f]{8} needs GPU 1 with 9GiB", mask.text(f"{name} needs GPU 1 with 9GiB"))


def test_the_ids_of_users_are_replaced_in_settings_and_in_texts_as_in_fields() -> None:
    mask = Mask()
    masked = mask.value({"owner": 1000, "users": ["1000", 1000], "uids": [1000, 0]})
    assert masked == {"owner": 100001, "users": ["100001", 100001], "uids": [100001, 0]}
    assert mask.value("1000", "NLS_DAEMON_UID") == "100001"
    for text in (
        "/run/user/{}/nls.sock",
        "of user {}, who",
        "(owner {}, mode)",
        "set NLS_DAEMON_UID={}.",
        "user@{}.service",
    ):
        assert mask.text(text.format(1000)) == text.format(100001)
    assert mask.text("1000 MiB for user 0, 1000 ms") == "1000 MiB for user 0, 1000 ms"


def test_a_gpu_that_went_out_of_service_is_called_as_ever() -> None:
    state = node_of("q7").state
    broken = replace(state, gpus={uuid: replace(gpu, healthy=False) for uuid, gpu in state.gpus.items()})
    entries = Recorder().entries(state, GpusDiscovered(0.0, ()), broken, ())
    mask, history = Mask(), [entry_view(entry) for entry in entries]
    mask.learn_from(history)
    assert [entry["name"] for entry in mask.value(history)] == ["GPU 0", "GPU 1"]
    assert mask.text("at home on GPU 0") == "at home on GPU 0"


@pytest.mark.parametrize("pattern", ["Tesla V100*", "*GeForce*", "NVIDIA L40S"])
def test_a_pool_names_the_same_products_in_a_bundle(pattern) -> None:
    gpu = Gpu(GpuUuid("GPU-0"), 0, "NVIDIA L40S" if "L40S" in pattern else "Tesla V100-GeForce", 2**30)
    state, mask = NodeState(gpus={gpu.uuid: gpu}, policy=Policy(pools=(Pool("fast", (pattern,)),))), Mask()
    assert state.pools[gpu.uuid].name == "fast"
    mask.learn_from(encode(state))
    masked = decode(mask.value(encode(state)))
    assert masked.pools[gpu.uuid] == masked.policy.pools[0]


def test_a_bundle_is_made_and_can_be_replayed_when_every_word_of_ours_is_a_name(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    rules = {"quota": {"limit": 1}, "users": ["owner"]}
    settings = {"queues": {"priority": rules, "quota": rules}, "pools": {"limit": {"gpus": ["0"]}}}
    (tmp_path / "nls_config.json").write_text(json.dumps({"NlsScheduler": settings}))
    node = node_of("priority")
    with closing(Journal(tmp_path / "journal.db")) as journal:
        state = NodeState(policy=node.state.policy)
        journal.begin(state, "boot-1")
        for event, commands in node.history:
            before, (state, _) = state, step(state, event)
            journal.record(event, before, state, commands)
    status = node_view(node.state, node.now, simulated=True, message=None)
    parts = Parts(tmp_path / "nls.sock", tmp_path, {"status": status}, ())
    parts.mask.learn(WORDS)
    parts.write(tmp_path / "problem.zip", {})
    assert [line for line in parts.told if line.startswith("no ")] == []
    with zipfile.ZipFile(tmp_path / "problem.zip") as archive:
        told, kept = (json.loads(archive.read(f"{name}.json")) for name in ("status", "settings"))
        (tmp_path / "excerpt.db").write_bytes(archive.read("journal.db"))
    assert set(told) == set(status)
    assert {len(name) for key in ("name", "queue", "gang") for name in values(key, told["workloads"]) if name} == {13}
    queues = kept["NlsScheduler"]["queues"]
    assert all(re.fullmatch("name-[0-9a-f]{8}", name) for name in (*queues, *kept["NlsScheduler"]["pools"]))
    assert [list(rules) for rules in queues.values()] == [["quota", "users"]] * 2
    assert not set(WORDS) & {name for quota in values("quota", queues) for name in quota}
    assert main(["replay", str(tmp_path / "excerpt.db")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("all decided as they were then.")


def test_the_journal_of_a_system_daemon_is_that_of_its_unit_or_beside_its_socket(tmp_path, monkeypatch) -> None:
    place = tmp_path / "nls.sock"
    monkeypatch.setattr(locate, "SYSTEM_SOCKET", place)
    assert Parts(place, None, {}, ()).state_dir == SYSTEM_STATE
    (tmp_path / "journal.db").touch()
    assert Parts(place, None, {}, ()).state_dir == tmp_path
    assert Parts(place, tmp_path / "given", {}, ()).state_dir == tmp_path / "given"


def test_a_part_that_cannot_be_made_is_told_and_the_others_are_there(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    (tmp_path / "nls.log").mkdir()
    parts = Parts(tmp_path / "nls.sock", tmp_path, {"status": object()}, ())
    about = parts.write(tmp_path / "problem.zip", {})
    with zipfile.ZipFile(tmp_path / "problem.zip") as archive:
        assert sorted(archive.namelist()) == ["README.txt", "doctor.json", "settings.json", "versions.json"]
    assert "- no status.json: TypeError: " in about
    assert "- no nls.log: IsADirectoryError: " in about
