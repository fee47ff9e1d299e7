"""Handlers of logs come back as the objects that they were: a logger's is the one that a name or an instance has."""

from __future__ import annotations

import logging
import sys

import pytest
from test_saved_state_modules import carried  # noqa: F401 - a fixture

from left_out import thinned
from saved_state_processes import carried_on
from saved_state_roundtrip import Roundtrip, cells, of_user

FRESH = "import io, logging, sys\nlog, other = logging.getLogger('mine'), logging.getLogger('other')\n"
LINES = """
shown, sys.stderr, sys.stdout = io.StringIO(), sys.stderr, sys.stdout
def lines(handler, say):
    was = handler.setStream(shown)
    say()
    handler.setStream(was)
    return shown.getvalue().splitlines()
"""


@pytest.mark.parametrize(
    ("before", "after"),
    thinned(
        [
            (
                (
                    "fmt = logging.Formatter('<%(message)s>'); sh = logging.StreamHandler(); sh.setFormatter(fmt)\n"
                    "log.addHandler(sh); log.propagate = False"
                ),
                (
                    "assert log.handlers == [sh] and sh.formatter is fmt and sh.stream is sys.stderr\n"
                    "assert lines(sh, lambda: log.warning('x')) == ['<x>']\n"
                    "sh.setLevel(logging.ERROR); assert lines(sh, lambda: log.warning('y')) == ['<x>']"
                ),
            ),
            (
                (
                    "sh = logging.StreamHandler(sys.stdout); sh.set_name('named')\n"
                    "logging.basicConfig(handlers=[sh], force=True, level=logging.INFO)"
                ),
                (
                    "assert logging.root.handlers == [sh] and sh.stream is sys.stdout\n"
                    "assert lines(sh, lambda: logging.info('x')) == ['INFO:root:x']\n"
                    "assert logging._handlers['named'] is sh"
                ),
            ),
            (
                (
                    "class Run:\n"
                    "    def __init__(self):\n"
                    "        self.h = logging.StreamHandler(); log.addHandler(self.h); other.addHandler(self.h)\n"
                    "run = Run()"
                ),
                "assert log.handlers == other.handlers == [run.h]",
            ),
            (
                (
                    "one, two = logging.StreamHandler(), logging.StreamHandler()\n"
                    "log.addHandler(one); log.addHandler(two)\n"
                    "log.addHandler(one)"
                ),
                "assert log.handlers == [one, two] and one is not two",
            ),
            (
                (
                    "class Counts(logging.Handler):\n"
                    "    def __init__(self, seen): super().__init__(); self.seen = seen\n"
                    "    def emit(self, record): self.seen.append(record.getMessage())\n"
                    "seen = []; log.addHandler(Counts(seen)); log.warning('before')"
                ),
                "log.warning('after'); assert seen == ['before', 'after'] and log.handlers[0].lock.acquire()",
            ),
            (
                "h = logging.NullHandler(); log.addHandler(h); last = logging.lastResort",
                "assert log.handlers == [h] and last is logging.lastResort",
            ),
        ],
        3,
        "settings of loggers",
    ),
    ids=["a name", "basicConfig", "an instance and two loggers", "two alike", "one of a cell's class", "the last one"],
)
def test_a_logger_has_the_very_handler(before, after):
    assert carried_on(FRESH + before, LINES + after) == []


@pytest.mark.parametrize("kind", ["FileHandler", "handlers.RotatingFileHandler", "handlers.WatchedFileHandler"])
def test_a_file_is_written_on_at_its_end_and_once(tmp_path, kind):
    path = str(tmp_path / "a.log")
    before = (
        f"import logging.handlers\nfh = logging.{kind}({path!r}, mode='w', encoding='utf-8')\n"
        "log.addHandler(fh); log.warning('one')"
    )
    after = f"log.warning('two'); assert log.handlers == [fh] and open({path!r}).read().split() == ['one', 'two']"
    assert carried_on(FRESH + before, after) == []


def test_one_that_waits_for_its_first_line_still_does(tmp_path):
    path = tmp_path / "a.log"
    before = f"import logging\nfh = logging.FileHandler({str(path)!r}, delay=True)"
    after = "assert fh.stream is None\nfh.emit(logging.makeLogRecord({'msg': 'x'})); fh.close()"
    assert carried_on(before, after) == []
    assert path.read_text() == "x\n"


def test_one_that_writes_what_cannot_be_opened_again_is_named(tmp_path):
    before = cells(f"""
import logging
class Zipped(logging.FileHandler):
    def _open(self):
        import gzip
        return gzip.open(self.baseFilename, "at")
fh = Zipped({str(tmp_path / "a.gz")!r})
fine = [1]
""")
    result = of_user(before)
    before["fh"].close()
    assert result["fine"] == [1]
    assert set(result.unsaved) == {"fh"}


def test_what_a_module_asks_for_again_is_not_there_twice(carried, tmp_path):  # noqa: F811 - the fixture
    (tmp_path / "asks.py").write_text("""
import logging
log = logging.getLogger("asks")
handler = logging.StreamHandler()
log.addHandler(handler)
""")
    before = "import asks\nmine = asks.handler\nmine.setLevel(30)"
    after = (
        "import logging\nassert logging.getLogger('asks').handlers == [asks.handler] == [mine]\nassert mine.level == 30"
    )
    assert carried(before, after) == []


def test_its_lock_may_be_taken_and_its_stream_is_this_process_s():
    handler = logging.StreamHandler(sys.stdout)
    handler.acquire()
    try:
        result = Roundtrip({"x": handler, "again": [handler]})
    finally:
        handler.release()
    assert result["x"] is result["again"][0]
    assert result["x"].stream is sys.stdout
    assert result["x"].lock is not handler.lock
