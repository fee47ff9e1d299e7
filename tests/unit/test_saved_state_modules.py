"""What cells change in the user's own modules comes back with the names, in a process that imports them anew."""

from __future__ import annotations

import os
import zipfile

import pytest
from test_saved_state_interpreter import in_process

from left_out import thinned
from nls_jupyter.saved_state import read_manifest

_HELPERS = """
import logging, threading, random, enum, dataclasses
REGISTRY = {}
MODE = "cpu"
LIMIT = 5
LOCK = threading.Lock()
LOCK.acquire()
TABLE = {"lock": LOCK}
NUMBERS = random.Random(1)
log = logging.getLogger("helpers")
def register(name, value): REGISTRY[name] = value
def counted(seen=[]):
    seen.append(1)
    return len(seen)
scaled = lambda x: x * Net.scale
class Net:
    scale = 2
    kinds = []
    def forward(self): return self.scale
    @property
    def twice(self): return 2 * self.scale
    class Inner:
        depth = 1
class Color(enum.Enum):
    RED = 1
@dataclasses.dataclass
class Point:
    x: int = 1
    tags: list = dataclasses.field(default_factory=list)
"""
_OTHER = """
from helpers import REGISTRY
def look(name): return REGISTRY[name]
"""


@pytest.fixture
def carried(tmp_path):
    """Runs cells in one process and others in the next, with modules of the user's beside them; what was named."""
    (tmp_path / "helpers.py").write_text(_HELPERS)
    (tmp_path / "other.py").write_text(_OTHER)
    first = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.dont_write_bytecode = True\n#%%\n"

    def carried(before, after):
        fd = os.memfd_create("test")
        try:
            missing = in_process(fd, "save", first + before)
            carried.labels = {name.name for name in read_manifest([fd]).saved if ":" in name.name}
            return missing + in_process(fd, "restore", after)
        finally:
            os.close(fd)

    return carried


@pytest.mark.parametrize(
    ("change", "check"),
    thinned(
        [
            ("import helpers; helpers.register('a', 1)", "helpers.REGISTRY == {'a': 1}"),
            (
                "import helpers; helpers.MODE = 'gpu'; helpers.more = [1]",
                "(helpers.MODE, helpers.more) == ('gpu', [1])",
            ),
            ("import helpers; del helpers.LIMIT", "not hasattr(helpers, 'LIMIT')"),
            ("import helpers; helpers.Net.scale = 7", "helpers.Net().twice == 14 and helpers.scaled(2) == 14"),
            ("import helpers; helpers.Net.kinds.append(3)", "helpers.Net.kinds == [3]"),
            ("import helpers; helpers.Net.Inner.depth = 4", "helpers.Net.Inner.depth == 4"),
            ("from helpers import Net; Net.forward = lambda self: 'mine'", "Net().forward() == 'mine'"),
            ("import helpers; helpers.register.calls = 3", "helpers.register.calls == 3"),
            ("import helpers; helpers.counted(); helpers.counted()", "helpers.counted() == 3"),
            (
                "from helpers import REGISTRY, register\nregister('a', 1)",
                "(register('b', 2), REGISTRY)[1] == {'a': 1, 'b': 2}",
            ),
            ("from helpers import REGISTRY, register", "(register('b', 2), REGISTRY)[1] == {'b': 2}"),
            (
                "import other, helpers\nx = [1]; helpers.register('x', x)",
                "other.look('x') is x is helpers.REGISTRY['x']",
            ),
            (
                "import helpers; draw = helpers.NUMBERS.random; helpers.NUMBERS.seed(4)",
                "draw() == __import__('random').Random(4).random() and draw.__self__ is helpers.NUMBERS",
            ),
            ("import helpers, importlib; helpers.MODE = 1; importlib.reload(helpers)", "helpers.MODE == 'cpu'"),
            ("import helpers; take = helpers.scaled", "(setattr(helpers.Net, 'scale', 5), take(2))[1] == 10"),
        ],
        3,
        "changes of the user's own modules",
    ),
)
def test_it_comes_back(carried, change, check):
    assert carried(change, f"assert {check}") == []


_BY_PATH = """
import importlib.util, json, sys
def load(name, source):
    spec = importlib.util.spec_from_file_location(name, source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""


def test_of_modules_that_cells_load_from_a_file_as_well(carried, tmp_path):
    """Also where the name is another module's for Python: that one is looked at as nobody's who was loaded so."""
    source = str(tmp_path / "helpers.py")
    before = _BY_PATH + (
        f"helpers = sys.modules['helpers'] = load('helpers', {source!r})\n"
        f"from helpers import Net, register\nregister('a', 1); helpers.MODE = 'gpu'; Net.scale = 3\n"
        f"other, second = load('json', {source!r}), load('helpers', {source!r})\n"
        "def counts(register=other.register, seen=other.REGISTRY): register('b', 2); return len(seen)\n"
        "counts(); del other, second"
    )
    after = (
        "assert (helpers.MODE, helpers.REGISTRY, Net.scale) == ('gpu', {'a': 1}, 3) and register is helpers.register\n"
        "assert counts() == 1 and json.dumps(1) == '1'"
    )
    assert carried(before, after) == []
    assert not any(label.startswith("json") for label in carried.labels)


def test_of_modules_in_a_zip_file_as_well(carried, tmp_path):
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        packed.writestr("zipped.py", _HELPERS)
    before = f"sys.path.insert(0, {str(tmp_path / 'packed.zip')!r})\nimport zipped; zipped.register('a', 1)"
    assert carried(before, "assert zipped.REGISTRY == {'a': 1}") == []


def test_a_module_that_cannot_be_executed_is_told_as_python_tells_it(carried, tmp_path):
    (tmp_path / "ill.py").write_text("1 / 0")
    before = (
        "import traceback\ntry: import ill\nexcept ZeroDivisionError as error:\n"
        "    files = [os.path.basename(step.filename) for step in traceback.extract_tb(error.__traceback__)[1:]]"
    )
    assert carried(f"import os\n{before}", "assert files == ['ill.py'], files") == []


def test_what_nobody_changed_is_neither_saved_nor_named(carried):
    names = "import helpers\nfrom helpers import register, Net, Color, Point\nnet = Net(); point = Point()"
    assert carried(names, "assert helpers.LIMIT == 5 and type(net) is helpers.Net") == []
    assert carried.labels == {"helpers:NUMBERS"}  # only its pickle tells whether it changed


def test_what_was_changed_and_cannot_be_saved_is_named(carried):
    lost = carried("import helpers; helpers.TABLE['more'] = 1; helpers.LOCK = helpers.LOCK, 1", "")
    assert sorted(lost) == [[f"helpers:{name}", "it holds a lock that is taken"] for name in ("LOCK", "TABLE")]


def test_the_context_of_decimal_numbers_comes_back(carried):
    change = "import decimal; decimal.getcontext().prec = 50; decimal.getcontext().traps[decimal.Inexact] = True"
    check = "import decimal; c = decimal.getcontext(); assert (c.prec, c.traps[decimal.Inexact]) == (50, True)"
    assert carried(change, check) == []


def test_what_pip_has_installed_into_a_folder_is_no_module_of_the_users(carried, tmp_path):
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "__init__.py").write_text(
        "import threading\nSEEN, LOCKS = [], []\n"
        "def look(): SEEN.append(1); LOCKS.append(threading.Lock()); LOCKS[0].acquire()"
    )
    (tmp_path / "single.py").write_text("SEEN = []")
    (tmp_path / "packed-1.0.dist-info").mkdir()
    record = "packed/__init__.py,sha256=x,5\nsingle.py,,\npacked-1.0.dist-info/RECORD,,\n"
    (tmp_path / "packed-1.0.dist-info" / "RECORD").write_text(record)
    cells = "import packed, single, helpers\nhelpers.MODE = 'gpu'\n"
    cells += "packed.look(); held = packed.SEEN; single.SEEN.append(1)"
    assert carried(cells, "assert (held, helpers.MODE) == ([1], 'gpu')") == []
    assert not any(label.startswith(("packed", "single")) for label in carried.labels)
