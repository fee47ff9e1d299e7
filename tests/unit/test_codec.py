"""The core's values survive JSON unchanged; what is not known is refused."""

from __future__ import annotations

import json

import pytest

from connections import pairs
from nls_scheduler.core.model import commands, events
from nls_scheduler.core.model.codec import UnknownValueError, decode, encode
from nls_scheduler.core.model.ids import CommandId, GpuUuid, ProcessId, WorkloadId
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.workload import Kind, Phase
from nls_scheduler.core.simulator import GIB, SimulatedNode


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
        commands.StartProcess(CommandId(1), WorkloadId("w1"), "why", None, (GpuUuid("GPU-0"),)),
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
