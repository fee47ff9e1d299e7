from __future__ import annotations

import argparse
import errno
import fcntl
import io
import os
import pty
import pwd
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from daemon_process import NLS, nls_environment
from nls_scheduler.__main__ import main as entry_point
from nls_scheduler.cli import _parser, main
from nls_scheduler.cli.history import render as render_history
from nls_scheduler.cli.output import table
from nls_scheduler.cli.status import render
from nls_scheduler.cli.topics import topic_of_refusal
from nls_scheduler.cli.waiting_line import WaitingLine
from nls_scheduler.cli.watching import without_figures
from nls_scheduler.cli.workload import find
from nls_scheduler.daemon import log_lines
from nls_scheduler.daemon.http import server
from nls_scheduler.wire.errors import Problem

GIB = 2**30
WORKLOAD: dict[str, Any] = {
    "name": "training-7", "phase": "queued", "executing": False, "kind": "command", "position": 2, "gpus": [],
    "home": ["GPU-a"], "gpu_count": 1, "request_bytes": 8 * GIB, "limit_bytes": 16 * GIB, "memory_used_bytes": 0,
    "reason": "GPU 0 is held by notebook-1",
}  # fmt: skip
STATUS: dict[str, Any] = {
    "simulated": True,
    "message": None,
    "gpus": [{"uuid": "GPU-a", "index": 0, "name": "Test", "memory_total_bytes": 16 * GIB, "memory_used_bytes": None,
              "healthy": False, "utilisation": 0.5}],
    "workloads": [WORKLOAD],
}  # fmt: skip


@pytest.mark.parametrize("arguments", [["dance"], ["run"], ["run", "--gpus", "two", "--", "x"], ["up", "--what"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: nls" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--socket", "/nowhere"]])
def test_without_a_command_it_says_which_there_are(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    for command in ("status", "run", "doctor"):
        assert f"    {command} " in said.err


@pytest.mark.parametrize(
    "command", ["up", "down", "status", "run", "history", "suspend", "resume", "release", "doctor", "top"]
)
def test_every_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert "examples:\n  nls " in capsys.readouterr().out


@pytest.mark.parametrize(
    "option",
    ["node-name", "kubeconfig", "kubelet-socket", "policy", "topology", "reservation-namespace", "socket-directory"],
)
def test_what_is_of_a_cluster_is_not_passed_over_without_one(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _up_ends(monkeypatch, tmp_path, f"--{option}", "a/b") == 2
    assert capsys.readouterr().err == f"nls: --{option} means nothing without --kubernetes.\n"


@pytest.mark.parametrize("option", ["policy", "topology"])
@pytest.mark.parametrize("named", ["map", "a/b/c", "/map", "space/", "/"])
def test_a_config_map_is_named_with_its_namespace(
    option: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _up_ends(monkeypatch, tmp_path, "--kubernetes", "--node-name", "n", f"--{option}", named) == 2
    assert capsys.readouterr().err == f"nls: --{option} {named} is not NAMESPACE/NAME.\n"


def _up_ends(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    """With what, in this process, a daemon of one simulated Gpu does that is refused something."""
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: set())
    monkeypatch.setattr(os, "umask", lambda _: 0)
    monkeypatch.setattr(log_lines, "begin", lambda **_: None)
    monkeypatch.setattr(server, "serve", lambda *_: None)
    return main(["--socket", str(folder / "nls.sock"), "up", "--simulate", "1x1GiB", *arguments])


def test_help_needs_nothing_heavy() -> None:
    code = "import sys; import nls_scheduler.cli; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=nls_environment(), capture_output=True, text=True, check=True)
    assert not {"tornado", "traitlets", "pynvml", "jupyter_core"} & set(done.stdout.split())


def test_the_socket_may_be_named_before_or_after_the_command() -> None:
    for arguments in (["--socket", "/s", "status"], ["status", "--socket", "/s"]):
        options = _parser().parse_args(arguments, argparse.Namespace(socket=None, state_dir=None))
        assert str(options.socket) == "/s"


@pytest.mark.parametrize("option", ["--socket", "--state-dir"])
def test_an_empty_path_is_refused_as_such(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([option, "", "status"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith(
        f"nls: error: argument {option}: the path is empty: name one, or leave this option out\n"
    )


def test_a_commands_own_options_are_its_own() -> None:
    options = _parser().parse_args(["run", "--gpus", "2", "--", "python", "--gpus", "7"])
    assert options.command == ["python", "--gpus", "7"]
    assert options.gpus == (2, None)


def test_no_daemon_ends_with_3_and_what_to_do(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--socket", str(tmp_path / "none.sock"), "status"]) == 3
    assert "nls up --socket" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error(tmp_path: Any) -> None:
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" --help | true', "-", *NLS], env=nls_environment(), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr


WAITS = {"phase": "queued", "gpus": [], "since": None, "pid": None}
RUNS = {"phase": "running", "gpus": ["GPU 0"], "since": "2026-11-21T14:05:10", "pid": 9**9}
IDS = [{"id": "abc1", "name": "analysis", "own": True, **WAITS}, {"id": "abc2", "name": "abc1", "own": True, **WAITS},
       {"id": "d", "name": "twin", "own": True, **WAITS}, {"id": "e", "name": "twin", "own": True, **RUNS},
       {"id": "f7", "name": "f8", "own": False, **WAITS}, {"id": "f8a", "name": "f", "own": True, **WAITS}]  # fmt: skip


@pytest.mark.parametrize(("wanted", "found"), [("abc1", "abc1"), ("analysis", "abc1"), ("abc2", "abc2"), ("d", "d")])
def test_a_workload_is_found_by_id_then_name_then_the_beginning_of_its_id(wanted: str, found: str) -> None:
    assert find(IDS, wanted)["id"] == found


@pytest.mark.parametrize("uid", [1000, 0])
def test_ones_own_is_meant_before_anothers_that_is_called_so_and_root_is_asked_which(
    monkeypatch: pytest.MonkeyPatch, uid: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert find(IDS, "f7")["name"] == "f8"
    if uid:
        assert find(IDS, "f8")["id"] == "f8a"
    else:
        with pytest.raises(Problem, match=r"'f8' is ambiguous, name one by its id: f7 \(f8, .*\); f8a \(f, "):
            find(IDS, "f8")


@pytest.mark.parametrize(
    ("wanted", "says"),
    [("twin", "its id: d (twin, queued); e (twin, running on GPU 0 since 21 Nov 14:05)"), ("abc", "is ambiguous"),
     ("nobody", "there are analysis (abc1)"), ("", "There is no workload ''")],
)  # fmt: skip
def test_none_and_several_are_refused_with_those_there_are(wanted: str, says: str) -> None:
    with pytest.raises(Problem, match=re.escape(says)) as caught:
        find(IDS, wanted)
    assert topic_of_refusal(caught.value.title) == "not-there"


def test_the_status_reads_as_a_table() -> None:
    text = render(STATUS)
    assert "These GPUs are simulated." in text
    assert "GPU 0  Test  unknown  16 GiB  50%   unhealthy" in text
    assert "training-7  queued (2. in line)  -   GPU 0  8 GiB    16 GiB  0 B   GPU 0 is held by notebook-1" in text
    without = render({**STATUS, "workloads": [], "gpus": [], "message": "No driver.", "simulated": False})
    assert without.startswith("No driver. To try it out without one, start a daemon with simulated GPUs: nls up ")
    assert "Nobody asks for a GPU." in without


@pytest.mark.parametrize("gpus", [["GPU 0", "GPU 1"], []], ids=["on both", "waiting"])
def test_what_is_guaranteed_on_each_of_several_gpus_is_no_sum(gpus: list[str]) -> None:
    both = {**WORKLOAD, "gpus": gpus, "gpu_count": 2, "memory_used_bytes": 12 * GIB}
    assert "2 x 8 GiB  2 x 16 GiB  12 GiB" in render({**STATUS, "workloads": [both]})


def test_the_pods_that_own_gpus_are_shown_and_not_told_as_nobody() -> None:
    owners = [
        {"name": "ml/train", "gpus": [{"uuid": "GPU-a", "request_bytes": None}], "devices_to_come": 0},
        {"name": "ml/infer", "gpus": [{"uuid": "GPU-a", "request_bytes": 8 * GIB}], "devices_to_come": 0},
        {"name": "another user's pod", "gpus": [], "devices_to_come": 2},
    ]
    text = render({**STATUS, "workloads": [], "owners": owners})
    assert "Nobody asks for a GPU." not in text
    assert [re.split(" {2,}", line) for line in text.splitlines()[-4:]] == [
        ["OWNER", "ON", "OF EACH"],
        ["ml/train", "GPU 0", "all of it"],
        ["ml/infer", "GPU 0", "8 GiB"],
        ["another user's pod", "2 to come", "all of it"],
    ]


def test_who_shares_a_name_is_shown_with_the_beginning_of_its_id() -> None:
    twins = [{**WORKLOAD, "id": "0123456789ab"}, {**WORKLOAD, "id": "ba9876543210"}]
    text = render({**STATUS, "workloads": [*twins, {**WORKLOAD, "name": "other"}]})
    assert [line.partition("  ")[0] for line in text.splitlines()[-3:]] == [
        "training-7 (012345)",
        "training-7 (ba9876)",
        "other",
    ]


def test_whose_workloads_they_are_is_shown_where_several_users_have_some() -> None:
    nobody_s = max(entry.pw_uid for entry in pwd.getpwall()) + 7
    of_root, of_who_is_gone = {**WORKLOAD, "owner": 0}, {**WORKLOAD, "owner": nobody_s, "name": "other"}
    rows = [
        re.split(" {2,}", line)[:3] for line in render({**STATUS, "workloads": [of_root, of_who_is_gone]}).splitlines()
    ]
    assert rows[-3:] == [
        ["WORKLOAD", "USER", "PHASE"],
        ["training-7", "root", "queued (2. in line)"],
        ["other", str(nobody_s), "queued (2. in line)"],
    ]
    hidden = {**of_who_is_gone, "name": "another user's command"}
    assert "USER" not in render({**STATUS, "workloads": [of_root, hidden]})


def test_a_long_name_is_shown_without_its_middle_and_with_the_beginning_of_its_id() -> None:
    long = {**WORKLOAD, "id": "0123456789ab", "name": "An_analysis_" * 20 + " (copy 3).ipynb"}
    line = render({**STATUS, "workloads": [long]}).splitlines()[-1]
    assert line.startswith("An_analysis_An_anal...is_ (copy 3).ipynb (012345)  queued")


def test_the_history_reads_as_a_table() -> None:
    entry = {
        "time": "2026-11-21T06:39:10.903+00:00", "name": "n", "event": "moved", "from": "GPU 0", "to": "GPU 1",
        "seconds": 1.25, "bytes": 3 * GIB, "reason": "training-7 needs GPU 0",
    }  # fmt: skip
    today = datetime.fromisoformat(entry["time"]).astimezone().date()
    at = datetime.fromisoformat(entry["time"]).astimezone().strftime("%H:%M:%S")
    row = f"{at}  n         moved GPU 0 -> GPU 1  1.2      3 GiB       training-7 needs GPU 0"
    assert row in render_history([entry], today)
    assert render_history([]) == "Nothing has happened yet."


def test_the_history_has_the_time_of_this_place_and_the_day_and_year_where_these_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        rest = {"name": "n", "event": "left", "from": "", "to": "", "seconds": None, "bytes": None, "reason": ""}
        entries = [{"time": f"2026-11-21T{at}.903+00:00", **rest} for at in ("04:59:10", "05:00:10")]
        told = [line.split("  ")[0] for line in render_history(entries, date(2026, 11, 21)).splitlines()[1:]]
        assert told == ["11-20 23:59:10", "11-21 00:00:10"]
        assert render_history(entries[1:], date(2026, 11, 21)).splitlines()[1].startswith("00:00:10  n")
        assert render_history(entries[:1], date(2026, 11, 21)).splitlines()[1].startswith("11-20 23:59:10  n")
        told = [line.split("  ")[0] for line in render_history(entries, date(2027, 1, 2)).splitlines()[1:]]
        assert told == ["2026-11-20 23:59:10", "2026-11-21 00:00:10"]
        later = [*entries, {"time": "2027-01-02T12:00:00+00:00", **rest}]
        told = [line.split("  ")[0] for line in render_history(later, date(2027, 1, 2)).splitlines()[1:]]
        assert told == ["2026-11-20 23:59:10", "2026-11-21 00:00:10", "2027-01-02 07:00:00"]
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("arguments", ["doctor --json", "status --watch"])
def test_without_a_standard_output_a_command_says_so(arguments: str) -> None:
    command = f"exec {sys.executable} -m nls_scheduler {arguments} >&-"
    done = subprocess.run(["sh", "-c", command], env=nls_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "nls: the output cannot be written: there is no standard output\n")


def test_a_table_is_as_wide_as_it_needs_to_be() -> None:
    assert table([["A", "B"], ["long", "x"]]) == "A     B\nlong  x"
    assert table([["A", "B"], ["訓練", "x"], ["e\u0301", "x"]]) == "A     B\n訓練  x\ne\u0301     x", (
        "two columns for each, and one"
    )


def test_a_table_is_as_wide_as_what_is_written_where_a_terminal_lacks_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert table([["A", "B"], ["naïve", "x"]]) == "A         B\nna\\xefve  x"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_live_line_that_goes_away() -> None:
    terminal = Terminal()
    line = WaitingLine(terminal)
    line.show(WORKLOAD)
    line.tick()
    line.clear()
    line.clear()
    assert terminal.getvalue().count("waiting for a GPU (2. in line): GPU 0 is held by notebook-1 [0 s]") == 2
    assert "\n" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(
    ("columns", "reason", "line"),
    [
        (40, "a reason that is longer than forty columns", "nls: waiting for a GPU (2. in ... [0 s]"),
        (60, "訓練訓練訓練訓練", "nls: waiting for a GPU (2. in line): 訓練訓練訓練訓練 [0 s]"),
        (59, "訓練訓練訓練訓練", "nls: waiting for a GPU (2. in line): 訓練訓練訓練... [0 s]"),
    ],
)
def test_the_live_line_is_never_longer_than_the_terminal(columns: int, reason: str, line: str) -> None:
    ours, users = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as shown, os.fdopen(users, "w", encoding="utf-8") as terminal:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        WaitingLine(terminal).show({**WORKLOAD, "reason": reason})
        assert shown.read(200).decode() == f"\r\x1b[K{line}"


def test_in_the_background_a_terminal_gets_one_line_for_each_new_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `nls run ... &`: its shell's user is typing there."""
    ours, users = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as shown, os.fdopen(users, "w") as terminal:
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
        line = WaitingLine(terminal)
        line.show({**WORKLOAD, "reason": "a"})
        line.tick()
        line.clear()
        assert shown.read(200) == b"nls: waiting for a GPU (2. in line): a\r\n"
        assert not select.select([shown], [], [], 0)[0]


def test_a_file_gets_one_line_for_each_new_reason() -> None:
    file = io.StringIO()
    line = WaitingLine(file)
    for reason in ("a", "a", "b"):
        line.show({**WORKLOAD, "reason": reason})
        line.tick()
    line.show({**WORKLOAD, "phase": "running"})
    line.clear()
    assert file.getvalue() == "nls: waiting for a GPU (2. in line): a\nnls: waiting for a GPU (2. in line): b\n"


def test_a_socket_of_100_kb_is_a_sentence_of_a_few(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NLS_SOCKET", "x" * 100_000)
    assert main(["status"]) == 3
    told = capsys.readouterr().err
    assert len(told) < 5000
    assert "Linux allows" in told


@pytest.mark.parametrize(
    "arguments",
    [["run", "--gpus=--", "--", "true"], ["simulate", "--seed=--"], ["observe", "--every=--"], ["up", "--set=--"]],
)
def test_two_dashes_are_no_value(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Python up to 3.12 takes them for an empty list, which no command expects."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith(": expected one argument\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--gang-size", "x", "--", "true"], "--gang-size: 'x' is no number of commands: from 1 on"),
        (["run", "--gang-size", "0", "--", "true"], "--gang-size: '0' is no number of commands: from 1 on"),
        (["run", "--gang-size", "9" * 5000, "--", "true"], "is no number of commands: from 1 on"),
        (["simulate", "--generate", "3x6h", "--seed", "x"], "--seed: 'x' is no seed: from 0 on"),
        (["simulate", "--generate", "3x6h", "--seed", "-1"], "--seed: '-1' is no seed: from 0 on"),
        (["simulate", "--generate", "3x6h", "--search", "9" * 5000], "is no number of seeds: from 1 to 1000"),
        (["simulate", "--generate", "3x6h", "--more-users", "x"], "'x' is no number of users: from 0 to 1000"),
        (["simulate", "--generate", "3x6h", "--request", "0"], "'0' is not more than 0 and at most 1: "),
        (["demo", "--gpus", "x"], "--gpus: 'x' is no number of GPUs: from 1 to 2"),
        (["demo", "--gpus", "3"], "--gpus: '3' is no number of GPUs: from 1 to 2"),
    ],
)
def test_a_number_that_is_none_is_told_what_it_is_of_and_what_is_allowed(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert says in capsys.readouterr().err.replace(": write a whole number from", ": from")


@pytest.mark.parametrize("arguments", [["replay", "\x1b[31mred"], ["wait-for-gpus", "\x1b[31mred"]])
def test_what_is_repeated_does_nothing_to_the_terminal(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit):
        main(arguments)
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert "\\x1b[31mred" in told


def test_a_terminal_without_the_letters_of_a_name_gets_their_numbers() -> None:
    environment = nls_environment() | {"PYTHONIOENCODING": "ascii"}
    ended = subprocess.run([*NLS, "help", "reserved"], env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "room is reserved for \\u2026, which" in ended.stdout


def test_top_without_rich_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["top"]) == 2
    assert "pip install 'nls-jupyter[top]'" in capsys.readouterr().err


def test_top_without_a_standard_input_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["top"]) == 2
    assert "needs a terminal" in capsys.readouterr().err


def test_only_what_is_no_figure_is_worth_another_status() -> None:
    busy = {**STATUS, "gpus": [{**STATUS["gpus"][0], "utilisation": 0.9, "memory_used_bytes": 5}]}
    grown = {**STATUS, "workloads": [{**WORKLOAD, "memory_used_bytes": 7, "waiting_s": 3.0}]}
    assert without_figures(busy) == without_figures(grown) == without_figures(STATUS)
    for changed in (
        {"phase": "running"},
        {"reason": "other"},
        {"executing": True},
        {"keep_until": "2026-11-24T22:00:00"},
    ):
        assert without_figures({**STATUS, "workloads": [{**WORKLOAD, **changed}]}) != without_figures(STATUS)


def test_ctrl_c_while_the_command_line_is_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt(name)

    module = type(sys)("nls_scheduler.cli")
    module.__getattr__ = interrupted  # type: ignore[method-assign]  # as an import in the middle of it
    monkeypatch.setitem(sys.modules, "nls_scheduler.cli", module)
    assert entry_point() == 130


@pytest.mark.parametrize(
    ("number", "tells"),
    [
        (errno.ENOSPC, "No space left on device. Free the disk that this is on, and start it again.\n"),
        (errno.EDQUOT, "Disk quota exceeded. Free the disk that this is on, and start it again.\n"),
        (errno.EROFS, "Read-only file system.\n"),
    ],
)
def test_a_simulation_that_finds_no_room_on_its_disk_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, number: int, tells: str
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr("os.umask", lambda _: 0o022)  # a daemon's, which would be that of all tests after this one
    socket = tmp_path / "nls.sock"
    assert main(["--socket", str(socket), "up", "--simulate", "1x1GiB"]) == 3
    assert capsys.readouterr().err.endswith(f"The daemon cannot serve {socket}: {tmp_path / 'simulated'}: {tells}")


def test_a_simulation_of_nothing_is_refused_and_no_real_gpus_are_served(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("os.umask", lambda _: 0o022)
    monkeypatch.setattr("nls_scheduler.daemon.http.server.serve", lambda *_: pytest.fail("it serves"))
    assert main(["--socket", str(tmp_path / "nls.sock"), "up", "--simulate", ""]) == 2
    assert "'' does not describe simulated GPUs" in capsys.readouterr().err


def test_no_value_that_is_refused_is_answered_with_the_name_of_a_function() -> None:
    (commands,) = (each for each in _parser()._actions if isinstance(each, argparse._SubParsersAction))
    types = {action.type for command in commands.choices.values() for action in command._actions}
    for each in types - {None, int, Path}:  # argparse has words for a number, and every text is a path
        with suppress(argparse.ArgumentTypeError):
            each("no such thing")


def test_a_demo_whose_notebooks_cannot_be_kept_does_not_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["demo", "--keep", str(file)]) == 1
    assert main(["demo", "--keep", str(file / "folder")]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"nls: The notebooks cannot be kept in {file}: File exists."
    assert second == f"nls: The notebooks cannot be kept in {file}/folder: Not a directory."
