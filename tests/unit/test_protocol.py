from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nls_scheduler.core.model import events
from nls_scheduler.core.model.commands import FreezeProcess, StartProcess, StopProcess, SuspendProcess, ThawProcess
from nls_scheduler.core.model.ids import CommandId, GpuUuid, ProcessId, WorkloadId
from nls_scheduler.core.model.reasons import said
from nls_scheduler.wire.errors import Problem
from nls_scheduler.wire.protocol import (
    Cause,
    CommandMessage,
    ErrorMessage,
    ViewMessage,
    as_name,
    check_version,
    clean_text,
    encode_command,
    encode_error,
    encode_event,
    encode_view,
    parse_daemon_message,
    parse_event,
)

W = WorkloadId("w")
ID = CommandId(3)
P = ProcessId(12, 99)
WHY = said("what a program knows")


@pytest.mark.parametrize(
    ("kind", "fields", "event"),
    [
        ("process_started", {"command_id": 3, "pid": 12, "start_time": 99}, events.ProcessStarted(1.5, W, ID, P)),
        ("process_ready", {"command_id": 3}, events.ProcessReady(1.5, W, ID)),
        ("process_ready", {"command_id": 3, "missing": ["a", "b"]}, events.ProcessReady(1.5, W, ID, ("a", "b"))),
        (
            "process_ready",
            {"command_id": 3, "lost_cells": ["[4]", "[5]"]},
            events.ProcessReady(1.5, W, ID, (), ("[4]", "[5]")),
        ),
        ("start_failed", {"command_id": 3, "reason": "no"}, events.StartFailed(1.5, W, ID, "no")),
        ("process_suspended", {"command_id": 3, "saved_bytes": 7}, events.ProcessSuspended(1.5, W, ID, 7)),
        ("suspend_failed", {"command_id": 3, "reason": "no"}, events.SuspendFailed(1.5, W, ID, "no", busy=False)),
        (
            "suspend_failed",
            {"command_id": 3, "reason": "a cell", "busy": True},
            events.SuspendFailed(1.5, W, ID, "a cell", busy=True),
        ),
        ("process_exited", {"pid": 12, "start_time": 99, "reason": "x"}, events.ProcessExited(1.5, W, P, "x")),
        ("process_exited", {"reason": "x"}, events.ProcessExited(1.5, W, None, "x")),
        ("process_exited", {"pid": None, "start_time": None, "reason": "x"}, events.ProcessExited(1.5, W, None, "x")),
        ("cell_started", {}, events.CellStarted(1.5, W)),
        ("cell_finished", {}, events.CellFinished(1.5, W)),
        ("state_saved", {"saved_bytes": 0}, events.StateSaved(1.5, W, 0)),
        (
            "variables_lost",
            {"reason": "full", "missing": ["a"], "lost_cells": ["[4]"]},
            events.VariablesLost(1.5, W, "full", ("a",), ("[4]",)),
        ),
        ("variables_lost", {"reason": "full"}, events.VariablesLost(1.5, W, "full")),
        ("memory_trimmed", {"command_id": 3}, events.MemoryTrimmed(1.5, W, ID)),
        ("freeze_tested", {}, events.FreezeTested(1.5, W, None)),
        ("freeze_tested", {"refusal": "too old"}, events.FreezeTested(1.5, W, "too old")),
        ("process_frozen", {"command_id": 3, "frozen_bytes": 7}, events.ProcessFrozen(1.5, W, ID, 7)),
        ("freeze_failed", {"command_id": 3, "reason": "no"}, events.FreezeFailed(1.5, W, ID, "no")),
        ("process_thawed", {"command_id": 3}, events.ProcessThawed(1.5, W, ID)),
        ("thaw_failed", {"reason": "no", "command_id": 3}, events.ThawFailed(1.5, W, ID, "no")),
        (
            "reported",
            {"command_id": 3, "pid": 12, "start_time": 99, "ready": True, "executing": True, "frozen_bytes": 7},
            events.WorkloadReported(1.5, W, ID, P, ready=True, executing=True, saved_bytes=None, frozen_bytes=7),
        ),
        (
            "reported",
            {"command_id": 3, "pid": 12, "start_time": 99, "ready": True, "executing": False, "saved_bytes": 7}
            | {"received": 5},
            events.WorkloadReported(1.5, W, ID, P, ready=True, executing=False, saved_bytes=7, received=CommandId(5)),
        ),
        (
            "reported",
            {"command_id": 0, "ready": False, "executing": True},
            events.WorkloadReported(1.5, W, CommandId(0), None, ready=False, executing=True, saved_bytes=None),
        ),
    ],
)
def test_each_fact_of_a_supervisor_becomes_its_event(
    kind: str, fields: dict[str, object], event: events.WorkloadEvent
) -> None:
    assert parse_event(encode_event(kind, fields), W, 1.5) == event


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "3", "null", "[]", '"x"', "{}", '{"event": null}', '{"event": ["x"]}', '{"event": "CellStarted"}',
        '{"event": "cell_started", "at": 3}', '{"event": "process_ready"}',
        '{"event": "process_ready", "command_id": "3"}',
        '{"event": "process_ready", "command_id": 3, "missing": "a"}',
        '{"event": "process_ready", "command_id": 3, "missing": [1]}',
        '{"event": "process_ready", "command_id": 3.0}', '{"event": "process_ready", "command_id": true}',
        '{"event": "state_saved", "saved_bytes": -1}', '{"event": "state_saved", "saved_bytes": 9223372036854775808}',
        '{"event": "start_failed", "command_id": 1, "reason": 5}', "[" * 100_000, b"\xff",
    ],
)  # fmt: skip
def test_nonsense_is_the_clients_fault_and_one_sentence(text: str | bytes) -> None:
    with pytest.raises(Problem) as caught:
        parse_event(text, W, 0.0)
    assert (caught.value.status, caught.value.fault) == (400, "client")
    assert "\n" not in caught.value.detail


@given(st.one_of(st.text(), st.binary(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)))
def test_whatever_arrives_is_an_event_or_a_problem(text: str | bytes) -> None:
    try:
        outcome: object = parse_event(text, W, 0.0)
    except Problem as problem:
        outcome = problem
    assert isinstance(outcome, events.WorkloadEvent) or (isinstance(outcome, Problem) and outcome.status == 400)


def test_a_reason_is_one_printable_line_of_bounded_length() -> None:
    told = parse_event(
        encode_event("start_failed", {"command_id": 1, "reason": "a\nb\x1b[31m\ud83d" + "x" * 9999}), W, 0
    )
    assert isinstance(told, events.StartFailed)
    assert told.reason.startswith("a b [31m?x")
    assert len(told.reason) == 2000


def test_names_that_did_not_come_back_are_printable_and_not_too_many() -> None:
    told = parse_event(encode_event("process_ready", {"command_id": 1, "missing": ["a\nb", "x" * 999] * 99}), W, 0)
    assert isinstance(told, events.ProcessReady)
    assert told.missing[:2] == ("a b", "x" * 100)
    assert len(told.missing) == 100


def test_clean_text_keeps_what_people_write() -> None:
    assert clean_text(" Modèle № 3 模型 ") == "Modèle № 3 模型"


def test_an_order_sets_no_variable_but_those_that_say_which_gpus_and_whose_place() -> None:
    start = StartProcess(ID, W, WHY, None, (GpuUuid("GPU-a"),))
    sent = {"NLS_GPU_COUNT": "1", "PYTHONPATH": "/tmp/evil", "LD_PRELOAD": "/tmp/evil.so", "PATH": "/tmp"}
    told = parse_daemon_message(encode_command(start, "because", None, sent))
    assert isinstance(told, CommandMessage)
    assert told.environment == {"NLS_GPU_COUNT": "1"}


def test_orders_arrive_as_they_were_given() -> None:
    start = StartProcess(ID, W, WHY, WorkloadId("o"), (GpuUuid("GPU-a"),))
    mask = {"CUDA_VISIBLE_DEVICES": "GPU-a"}
    assert parse_daemon_message(encode_command(start, "because", Cause("o", "owner"), mask)) == CommandMessage(
        "start_process", 3, "because", Cause("o", "owner"), ("GPU-a",), mask
    )
    suspend = SuspendProcess(ID, W, WHY, None)
    assert parse_daemon_message(encode_command(suspend, "because", None, {})) == CommandMessage(
        "suspend_process", 3, "because", kind=WHY.kind.value
    )
    stop = StopProcess(ID, W, WHY, None, 2.5)
    assert parse_daemon_message(encode_command(stop, "because", None, {})) == CommandMessage(
        "stop_process", 3, "because", grace_s=2.5
    )
    freeze = FreezeProcess(ID, W, WHY, None, 7.5, 3)
    assert parse_daemon_message(encode_command(freeze, "because", None, {})) == CommandMessage(
        "freeze_process", 3, "because", timeout_s=7.5, beside_bytes=3
    )
    thaw = ThawProcess(ID, W, WHY, None, (GpuUuid("GPU-a"),), 120.0)
    assert parse_daemon_message(encode_command(thaw, "because", None, {})) == CommandMessage(
        "thaw_process", 3, "because", gpus=("GPU-a",), timeout_s=120.0
    )


def test_views_and_errors_arrive_as_they_were_sent() -> None:
    assert parse_daemon_message(encode_view({"phase": "running"})) == ViewMessage({"phase": "running"})
    error = parse_daemon_message(encode_error(Problem(400, "Malformed", "say it again")))
    assert isinstance(error, ErrorMessage)
    assert (error.problem.status, error.problem.detail) == (400, "say it again")


@pytest.mark.parametrize("text", ["", "3", "{}", '{"command": "x"}', '{"view": 3}', '{"error": {}}', '{"error": null}'])
def test_a_daemon_that_talks_nonsense_is_told_apart(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own error is one
        parse_daemon_message(text)


def refusal(said: str | None) -> Problem | None:
    try:
        check_version(said)
    except Problem as problem:
        return problem
    return None


@pytest.mark.parametrize("said", [None, "1", "01"])
def test_a_client_of_this_protocol_or_one_that_does_not_say_is_served(said: str | None) -> None:
    assert refusal(said) is None


@pytest.mark.parametrize(
    ("said", "status", "fault", "says"),
    [
        ("0", 409, "client", "upgrade nls-jupyter where this client runs"),
        ("2", 409, "server", "upgrade nls-jupyter where the daemon runs"),
        ("", 400, "client", "is a whole number"),
        ("one", 400, "client", "is a whole number"),
        ("١", 400, "client", "is a whole number"),
        ("9" * 5000, 400, "client", "is a whole number"),
        ("-1", 400, "client", "is a whole number"),
    ],
)
def test_another_protocol_is_refused_with_the_end_to_upgrade(said: str, status: int, fault: str, says: str) -> None:
    problem = refusal(said)
    assert problem is not None
    assert (problem.status, problem.fault) == (status, fault)
    assert says in problem.detail


@pytest.mark.parametrize("text", ['{"event": "cell_started", "event": "cell_finished"}', '{"event": {"a": 1, "a": 1}}'])
def test_a_field_that_is_there_twice_is_refused_and_not_chosen_from(text: str) -> None:
    with pytest.raises(Problem, match="is there twice: send each field once"):
        parse_event(text, W, 1.5)


@pytest.mark.parametrize(
    ("file", "name"),
    [("", ""), ("b.ipynb", "b.ipynb"), ("\x1b", ""), ("x" * 300, "x" * 255), ("x" * 254 + " y", "x" * 254)],
)
def test_a_notebook_is_called_as_its_file_as_far_as_that_can_be_a_name(file: str, name: str) -> None:
    assert as_name(file) == name
