"""What cells have told loguru is there in the next process: its one logger, levels, and sinks under their numbers."""

from __future__ import annotations

import importlib
from unittest import mock

import pytest

from nls_jupyter.gpu_process import open_files
from saved_state_processes import carried, carried_on

pytest.importorskip("loguru", reason="pip install loguru to check what it has been told")


def test_loggers_write_to_the_sinks_that_cells_added(tmp_path):
    before = f"""
        import os; os.chdir({str(tmp_path)!r})
        from loguru import logger
        logger.remove()
        bound, raw, patched = logger.bind(run=3), logger.opt(raw=True), logger.patch(lambda r: r.update(message="new"))
        seen, kept = [], []
        def note(message): seen.append(str(message))
        def is_due(record): return "no" not in record["message"]
        whole = logger.add("whole.log", mode="w", format="{{level}} {{extra}} {{message}}", colorize=False)
        gone = logger.add(print); logger.remove(gone)
        noted = logger.add(note, level="WARNING", format="{{message}}", filter=is_due)
        lines = logger.add(kept.append, serialize=True)
        dated = logger.add("a/{{time}}.log", format="{{message}}", rotation="1 MB", retention=2, delay=False)
        bound.info("before"); os.chdir("/")
    """
    after = f"""
        import glob, json, loguru
        assert logger is loguru.logger and (whole, noted, lines, dated) == (1, 3, 4, 5)
        bound.warning("after"); logger.warning("no"); raw.info("raw\\n"); patched.info("old")
        logger.remove(noted); logger.warning("last"); logger.remove(lines); logger.remove(dated)
        assert seen == ["after\\n"], seen
        messages = [json.loads(line)["record"]["message"] for line in kept]
        assert messages == ["before", "after", "no", "raw\\n", "new", "last"]
        assert logger.add(note) == 6, logger
        assert open({str(tmp_path / "whole.log")!r}).read() == (
            "INFO {{'run': 3}} before\\nWARNING {{'run': 3}} after\\nWARNING {{}} no\\nraw\\n"
            "INFO {{}} new\\nWARNING {{}} last\\n"
        )
        (name,) = glob.glob({str(tmp_path / "a")!r} + "/*")
        assert open(name).read() == "before\\nafter\\nno\\nraw\\nnew\\nlast\\n"
    """
    assert carried_on(before, after) == []


def test_sinks_of_the_process_write_to_that_of_the_next_one():
    before = """
        import sys; from loguru import logger
        logger.remove(0); logger.add(sys.stdout, format="<red>{message}</red>", colorize=True)
    """
    after = """
        import sys; from loguru import logger
        assert len(str(logger).split("id=")) == 2 and "stdout" in str(logger), logger
        shown = []
        sys.stdout.write, write = shown.append, sys.stdout.write
        logger.info("shown"); sys.stdout.write = write
        assert shown == ["\\x1b[31mshown\\x1b[0m\\n"], shown
    """
    assert carried(before, after) == []


def test_levels_and_what_is_configured_or_disabled_come_back():
    before = """
        from loguru import logger
        seen = []
        def mark(record): record["extra"]["marks"] = marks
        logger.configure(
            handlers=[{"sink": seen.append, "level": "MINE", "format": "{level} {extra} {message}"}],
            levels=[{"name": "MINE", "no": 25, "color": "<red>"}, {"name": "INFO", "icon": "!"}],
            extra={"of": [1]}, patcher=mark, activation=[("one", False), ("one.two", True)],
        )
    """
    after = """
        from loguru import logger; marks = 2
        logger.log("MINE", "a"); logger.info("b")
        assert seen == ["MINE {'of': [1], 'marks': 2} a\\n"], seen
        assert logger.level("MINE") == ("MINE", 25, "<red>", " ") and logger.level("INFO").icon == "!"
        for name in "one", "one.two", "one.three":
            exec("log.error(name)", {"__name__": name, "log": logger, "name": name})
        assert [str(line).split()[-1] for line in seen[1:]] == ["one.two"]
    """
    assert carried_on(before, after) == []


def test_a_function_that_catches_is_the_same_one_and_what_was_kept_of_messages_is_there():
    before = """
        from loguru import logger
        logger.remove(); seen = []; logger.add(seen.append, format="{message}")
        @logger.catch(reraise=False)
        def divide(a): return 1 / a
        divide(0)
    """
    after = """
        from loguru import logger
        divide(0); logger.info("a")
        assert [message.record["level"].name for message in seen] == ["ERROR", "ERROR", "INFO"]
    """
    assert carried(before, after) == []


def test_what_a_module_of_the_users_adds_is_there_once(tmp_path):
    (tmp_path / "logs_of_mine.py").write_text(
        "from loguru import logger\nlogger.remove(0)\nseen = []\nlogger.level('OWN', no=7)\n"
        "logger.add(lambda m: seen.append(m), level='OWN')\nlogger.add(print)\n"
    )
    before = f"""
        import sys; sys.path.insert(0, {str(tmp_path)!r})
        from loguru import logger
        mine = logger.add(lambda message: got.append(message)); got = []
        import logs_of_mine; logger.remove(3)
    """
    after = """
        from loguru import logger
        logger.info("a")
        assert len(got) == len(logs_of_mine.seen) == 1 and mine == 1 and str(logger).count("id=") == 2, logger
        logger.remove(mine); logger.info("b"); assert len(got) == 1
    """
    assert carried_on(before, after) == []


def test_sinks_that_end_with_their_process_are_named(tmp_path):
    before = f"""
        import socket; from loguru import logger
        logger.remove()
        class Sent:
            def __init__(self): self.to = socket.socket()
            def write(self, message): pass
        logger.add(Sent()); logger.add(open({str(tmp_path / "a.log")!r}, "w")); logger.add({str(tmp_path / "b.log")!r})
    """
    after = "logger.info('a'); assert str(logger).count('id=') == 1 and logger.add(print) == 4"
    assert carried(before, after) == [
        ["loguru sink: 1", "it holds a socket"],
        ["loguru sink: 2", "it holds an open file"],
    ]


def test_a_sink_with_a_queue_has_another_one(tmp_path):
    path = str(tmp_path / "queued.log")
    before = f"""
        from loguru import logger
        logger.remove(); logger.add({path!r}, enqueue=True, format="{{message}}"); logger.info("a"); logger.complete()
    """
    after = f"logger.info('b'); logger.complete(); logger.remove(1); assert open({path!r}).read() == 'a\\nb\\n'"
    assert carried_on(before, after) == []


def test_what_was_logged_is_in_its_file_when_its_process_goes(tmp_path):
    logger = importlib.import_module("loguru").logger
    files = [tmp_path / name for name in ("buffered.log", "queued.log")]
    added = [logger.add(file, format="{message}", buffering=1 << 16, enqueue=file is files[1]) for file in files]
    try:
        logger.error("kept")
        # A thread of the sink's may have written this one by itself.
        with mock.patch.object(type(logger), "complete", autospec=True, side_effect=type(logger).complete) as complete:
            open_files.flush()
        complete.assert_called_once_with(logger)
        assert [file.read_text() for file in files] == ["kept\n"] * 2
    finally:
        for each in added:
            logger.remove(each)
