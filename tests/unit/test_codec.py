"""The core's values survive JSON unchanged; what is not known is refused."""

from __future__ import annotations

import json

import pytest

from connections import pairs
from nls_scheduler.core.model import commands, events
from nls_scheduler.core.model.codec import UnknownValueError, decode, encode
from nls_scheduler.core.model.ids import CommandId, GpuUuid, ProcessId, WorkloadId
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.reasons import NOTHING, Mention, Reason, Why, said, said_before
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.simulator import GIB, SimulatedNode

WHY = Why(
    Reason.NEEDED,
    gpus=(GpuUuid("GPU-0"),),
    who=(Mention("w2", "bob", "notebook", 1000, "tenant"),),
    because=(Why(Reason.QUEUE_SHARE, names=("a", "default"), numbers=(2.0, 1)), said("so")),
)


def there_and_back(value):
    return decode(json.loads(json.dumps(encode(value))))


def test_a_state_in_the_middle_of_a_move_comes_back_equal():
    node = SimulatedNode.of(connect=pairs((0, 1)))
    first = node.submit()
    second = node.submit()
    node.settle()
    node.hold(first, 4 * GIB)
    node.hold(second, 3 * GIB)
    node.submit(kind=Kind.COMMAND, request_bytes=16 * GIB)
    assert node.of_workload(second).pending is not None
    assert there_and_back(node.state) == node.state


@pytest.mark.parametrize(
    "value",
    [
        events.MemorySampled(
            1.5,
            {GpuUuid("GPU-0"): events.GpuReading(5, (), {ProcessId(1, 2): None}, 0.25)},
        ),
        events.SuspendFailed(2.0, WorkloadId("w1"), CommandId(3), "full", busy=True),
        commands.StartProcess(CommandId(1), WorkloadId("w1"), WHY, None, (GpuUuid("GPU-0"),)),
        frozenset({"a", "b"}),
        (Phase.RUNNING, None, True),
    ],
)
def test_a_value_comes_back_equal(value):
    assert there_and_back(value) == value


def test_fields_that_an_older_version_did_not_write_get_their_defaults():
    encoded = encode(Policy())
    del encoded["starvation_s"]
    assert decode(encoded) == Policy()


@pytest.mark.parametrize(("sentence", "why"), [("bob needs GPU 0", said_before("bob needs GPU 0")), ("", NOTHING)])
def test_a_sentence_that_an_older_version_wrote_is_what_was_said(sentence, why):
    node = SimulatedNode.of()
    workload = node.of_workload(node.submit())
    encoded = encode(workload)
    assert encoded["pending"]["reason"]["$"] == "Why"
    encoded["last_reason"] = encoded["pending"]["reason"] = sentence
    decoded = decode(json.loads(json.dumps(encoded)))
    assert (decoded.last_reason, decoded.pending.reason) == (why, why)
    assert decoded.last_reason.kind is Reason.SAID
    assert decoded.last_reason.text == sentence
    assert (decoded.release_reason, decoded.spec) == (None, workload.spec)


def test_what_was_said_of_an_end_is_no_reason_of_the_plans():
    for said_of_it in ("exited with code 3", WHY):
        event = events.ProcessExited(1.0, WorkloadId("w1"), None, said_of_it)
        assert there_and_back(event) == event


@pytest.mark.parametrize(
    "encoded",
    [
        {"$": "Teleport", "at": 1.0},
        {"$": "Phase", "value": "levitating"},
        {"$": "ProcessId", "pid": 1, "start_time": 2, "colour": "red"},
        {"$": "ProcessId"},
        {"at": 1.0},
    ],
)
def test_what_a_newer_version_wrote_is_refused_not_guessed(encoded):
    with pytest.raises(UnknownValueError):
        decode(encoded)


def test_a_value_that_is_not_the_cores_cannot_be_written():
    with pytest.raises(TypeError, match="not a value of the core"):
        encode(object())
