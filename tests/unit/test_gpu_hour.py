"""The GPU hour: it goes on after a failure, ends what hangs, and says of what it saw no more than that."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from leftovers import wait_until_none

FOLDER = Path(__file__).parent.parent.parent / "tools" / "gpu_hour"


@pytest.fixture
def kit(monkeypatch):
    """Its modules, which are no package."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import hour
    import results
    import steps

    yield hour, steps, results
    for name in ("hour", "steps", "results"):
        del sys.modules[name]


def program(steps, name, code, kind="figures", limit_s=30):
    return steps.Step(name, 1, limit_s, kind, [sys.executable, "-c", code])


def test_it_goes_on_after_a_failure_and_after_what_hangs_and_keeps_what_it_knows(kit, tmp_path):
    hour, steps, _ = kit
    plan = [
        program(steps, "breaks", "raise SystemExit(3)"),
        program(steps, "hangs", "import time; print('here', flush=True); time.sleep(600)", limit_s=1),
        program(steps, "says nonsense", "print('no figures')"),
        program(steps, "works", 'print(\'{"figures": {"speed": 3}}\')'),
    ]
    found = hour.play(plan, tmp_path, time.monotonic() + 60, simulated=True)
    outcomes = {"breaks": "failed", "hangs": "time was up", "says nonsense": "failed", "works": "ok"}
    assert {name: step["outcome"] for name, step in found.items()} == outcomes
    assert found["works"]["figures"] == {"speed": 3}
    assert json.loads((tmp_path / "results.json").read_text())["steps"] == found


def test_what_a_step_leaves_behind_is_ended_and_told(kit, tmp_path, monkeypatch):
    hour, steps, _ = kit
    monkeypatch.setattr(hour, "_GOES_BY_ITSELF_S", 0.2)
    left = f"import subprocess; subprocess.Popen(['{sys.executable}', '-c', 'import time; time.sleep(599)'])"
    step = program(steps, "leaves", f"{left}; print(1)")
    found = hour.run(step, tmp_path, 30, simulated=True)
    assert found["outcome"] == "ok"
    assert [command.endswith("time.sleep(599)") for command in found["left_running"]] == [True]
    wait_until_none("processes", lambda: hour._marked("leaves-"))


def test_whoever_ends_it_ends_its_step(kit, tmp_path, monkeypatch):
    hour, steps, _ = kit
    monkeypatch.setattr(hour, "_GOES_BY_ITSELF_S", 0.2)

    def interrupted(process, limit_s):
        raise KeyboardInterrupt

    monkeypatch.setattr(hour, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hour.run(program(steps, "endless", "import time; time.sleep(600)"), tmp_path, 30, simulated=True)
    assert hour._marked("endless-") == []


def test_a_step_for_which_no_time_is_left_is_not_run(kit, tmp_path):
    hour, steps, _ = kit
    plan = [program(steps, "late", f"open({str(tmp_path / 'ran')!r}, 'w')")]
    found = hour.play(plan, tmp_path, time.monotonic() + 5, simulated=True)
    assert found["late"]["outcome"] == "not run"
    assert not (tmp_path / "ran").exists()


def test_what_cannot_be_written_is_printed_and_stops_nothing(kit, tmp_path, monkeypatch, capsys):
    hour, steps, _ = kit

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hour, "write", full)
    plan = [program(steps, name, "print('{\"speed\": 7}')") for name in ("one", "two")]
    monkeypatch.setattr(hour, "plan", lambda **_: plan)
    monkeypatch.setattr(sys, "argv", ["hour.py", "all", "--simulate", "--out", str(tmp_path)])
    hour.main()
    said = capsys.readouterr().out
    assert "results.json cannot be written: [Errno 28] No space left on device" in said
    (printed,) = [line for line in said.splitlines() if line.startswith("{")]
    assert [(name, step["figures"]["speed"]) for name, step in json.loads(printed).items()] == [("one", 7), ("two", 7)]


def test_a_step_whose_files_cannot_be_written_has_failed_and_the_next_one_runs(kit, tmp_path):
    hour, steps, _ = kit
    (tmp_path / "one.txt").mkdir()
    plan = [program(steps, name, "print('{}')") for name in ("one", "two")]
    found = hour.play(plan, tmp_path, time.monotonic() + 60, simulated=True)
    assert [step["outcome"] for step in found.values()] == ["failed", "ok"]


def test_what_was_simulated_before_is_not_taken_for_a_real_gpu_s(kit, tmp_path):
    _, _, results = kit
    for simulated, name in ((True, "first"), (False, "second"), (False, "third")):
        results.write(tmp_path / "results.json", {name: {}}, simulated=simulated)
    assert list(json.loads((tmp_path / "results.json").read_text())["steps"]) == ["second", "third"]


@pytest.mark.parametrize("before", ["", "no JSON", "[]"])
def test_a_file_of_results_that_is_damaged_stops_nothing(kit, tmp_path, before):
    _, _, results = kit
    (tmp_path / "results.json").write_text(before)
    results.write(tmp_path / "results.json", {"one": {}}, simulated=True)
    assert list(json.loads((tmp_path / "results.json").read_text())["steps"]) == ["one"]


@pytest.mark.parametrize(("simulated", "outcome"), [(True, "ok"), (False, "skipped")])
def test_what_is_skipped_on_a_real_gpu_has_not_been_tried(kit, simulated, outcome):
    _, steps, _ = kit
    step = program(steps, "tests", "", kind="tests")
    assert steps.outcome(step, 0, {"a": "passed", "b": "skipped: no GPU"}, simulated=simulated) == outcome


@pytest.mark.parametrize(("text", "outcome"), [("It plays on one of them.", "ok"), ("on one SIMULATED GPU", "skipped")])
def test_a_story_that_was_simulated_is_none_of_a_real_gpu(kit, text, outcome):
    _, steps, _ = kit
    step = program(steps, "story", "", kind="lines")
    assert steps.outcome(step, 0, [{"type": "note", "text": text}, {"type": "event"}], simulated=False) == outcome
    assert steps.outcome(step, 0, [{"type": "note", "text": text}], simulated=True) == "ok"


def test_each_test_of_a_gpu_and_each_part_is_in_the_plan(kit):
    _, steps, _ = kit
    plan = steps.plan(simulated=False)
    words = [word for step in plan for word in step.command]
    files = (FOLDER.parent.parent / "tests" / "gpu").glob("test_*.py")
    assert [file.name for file in files if str(file) not in words] == []
    assert {step.part for step in plan} == {1, 2, 3, 4}
    assert all(Path(word).exists() for word in words if word.endswith(".py"))
    assert len({step.name for step in plan}) == len(plan)


def test_the_table_says_what_has_not_run_and_which_bar_is_missed(kit, tmp_path):
    _, _, results = kit
    memory = {
        "bytes": 10 * 2**30, "down_gib_s": 50.0, "save_changed_s": 0.5, "restore_s": 0.6, "unchanged_s": 0.01,
        "save_changed_speed_over_copy": 0.9, "restore_speed_over_copy": 0.7,
    }  # fmt: skip
    for part, found in enumerate(({"machine": {"gpus": {"name": "NVIDIA H100 80GB"}}}, {"memory_cupy_10": memory})):
        folder = tmp_path / str(part)
        folder.mkdir()
        told = {name: {"outcome": "ok", "told": "", "figures": figures} for name, figures in found.items()}
        results.write(folder / "results.json", told, simulated=False)
    whole = results.merged([tmp_path / "0", tmp_path / "1"])
    assert results.name_of(whole) == "nvidia-h100-80gb"
    rows = dict(line.strip("| ").split(" | ") for line in results.table(whole).splitlines())
    assert rows["saved state's speed"] == "ok"
    assert rows["the story on one GPU (`nls demo`)"] == "has not run"
    assert rows["memory_cupy_10: save over a page-locked copy (0.8)"] == "0.9"
    assert rows["memory_cupy_10: restore over a page-locked copy (0.8)"] == "0.7, which is not enough"
    assert rows["memory_cupy_10: move of 10 GiB, s (1)"] == "1.1, which is not enough"
