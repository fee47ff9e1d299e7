"""What a notebook depends on beside its names: random numbers, settings, folders, history, recipes, other codecs."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys
import time
import types

import pytest

from left_out import thinned
from nls_jupyter import saved_state
from nls_jupyter.saved_state import Saver, libraries, recipes
from saved_state_processes import carried, in_process
from saved_state_roundtrip import Roundtrip, restore

TORCH = pytest.mark.long("settings of libraries: PyTorch is imported by each process")


@pytest.mark.long("settings of libraries: PyTorch is imported by each process")
def test_settings_that_nobody_changed_import_nothing_of_a_library():
    """PyTorch's compiler, which its setting of deterministic algorithms imports, takes seconds."""
    assert (
        carried("import torch; x = torch.ones(1)", "import sys; assert x; assert 'torch._dynamo' not in sys.modules")
        == []
    )


@pytest.mark.parametrize(
    ("before", "after"),
    thinned(
        [
            (
                "import random; random.seed(3); state = random.getstate()",
                "import random; assert random.getstate() == state",
            ),
            (
                (
                    "import numpy as np; np.random.seed(3); np.random.rand(); rng = np.random.default_rng(4)\n"
                    "expected = (np.random.RandomState(3).rand(2)[1], np.random.default_rng(4).random())"
                ),
                "assert (np.random.rand(), rng.random()) == expected",
            ),
            (
                "import numpy as np; np.seterr(divide='raise'); np.set_printoptions(precision=2)",
                "assert np.geterr()['divide'] == 'raise' and np.get_printoptions()['precision'] == 2",
            ),
            pytest.param(
                (
                    "import torch; torch.manual_seed(3); torch.rand(1); state = torch.get_rng_state()\n"
                    "expected = (torch.rand(3), torch.set_rng_state(state))[0]"
                ),
                "assert torch.equal(torch.rand(3), expected)",
                marks=TORCH,
            ),
            pytest.param(
                (
                    "import torch; torch.set_default_dtype(torch.float64); torch.set_grad_enabled(False)\n"
                    "torch.set_float32_matmul_precision('high'); torch.backends.cudnn.benchmark = True\n"
                    "torch.set_default_device('meta')"
                ),
                (
                    "assert torch.ones(1).dtype == torch.float64 and not torch.is_grad_enabled()\n"
                    "assert torch.get_float32_matmul_precision() == 'high' and torch.backends.cudnn.benchmark\n"
                    "assert torch.ones(1).device.type == 'meta'"
                ),
                marks=TORCH,
            ),
            ("import os; os.chdir('/usr')", "import os; assert os.getcwd() == '/usr'"),
            (
                (
                    "import os, sys; sys.path.insert(0, '/usr/lib'); os.environ['MINE'] = 'x'; del os.environ['LANG']\n"
                    "os.environ['CUDA_VISIBLE_DEVICES'] = 'GPU-of-before'"
                ),
                (
                    "import os, sys; assert sys.path[0] == '/usr/lib' and os.environ['MINE'] == 'x'\n"
                    "assert os.environ.get('LANG') is None and 'NLS_TEST' not in os.environ\n"
                    "assert os.environ.get('CUDA_VISIBLE_DEVICES') != 'GPU-of-before'"
                ),
            ),
            (
                "import warnings; warnings.filterwarnings('ignore', 'quiet please')",
                "import warnings; warnings.warn('quiet please, all of you')",
            ),
            ("import sys; sys.setrecursionlimit(4321)", "import sys; assert sys.getrecursionlimit() == 4321"),
            (
                "import matplotlib; matplotlib.rcParams['lines.linewidth'] = 7",
                "assert matplotlib.rcParams['lines.linewidth'] == 7",
            ),
            (
                "import pandas as pd; pd.set_option('display.max_rows', 7)",
                "assert pd.get_option('display.max_rows') == 7",
            ),
            ("%load_ext autoreload", "%autoreload 0"),
            (
                "x = [1]\n#%%\nx\n#%%\n1 + 1",
                (
                    "assert Out[2] is x and Out[3] == 2 and _ == 2 and __ is x, Out\n#%%\n"
                    "assert In[1:4] == ['x = [1]', 'x', '1 + 1'] and len(In) == 6, In\n#%%\nx\n#%%\nassert Out[6] is x"
                ),
            ),
            (
                "import sys; sys.modules['__main__'].__dict__['late'] = 1; l = [1]; out = (l,)\n#%%\nl",
                "assert out[0] is l is Out[2]",
            ),
        ],
        3,
        "parts of a session",
    ),
    ids=lambda text: text[:40],
)
def test_it_is_as_it_was_in_the_next_process(before, after):
    assert carried(before, after, LANG="C.UTF-8") == []


def test_what_cannot_be_kept_of_the_interpreter_is_named():
    fake = "import sys, types\ncupy = types.ModuleType('cupy')\ncupy.random = types.SimpleNamespace()\n"
    fake += "cupy.random._generator = types.SimpleNamespace(_random_states={0: 1})\n"
    fake += "cupy.cuda = types.SimpleNamespace(is_available=lambda: False, get_allocator=lambda: None)\n"
    fake += "cupy.get_default_memory_pool = lambda: None\ncupy.ndarray = type('ndarray', (), {})\n"
    fake += "sys.modules['cupy'] = cupy; del cupy"
    missing = carried(fake, "1")
    assert missing == [["CuPy's random state", "cuRAND does not tell its state: its numbers begin anew"]]


def test_a_folder_that_is_gone_is_named_and_the_rest_comes_back(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    fd = os.memfd_create("test")
    in_process(fd, "save", f"import os; os.chdir({str(folder)!r}); x = 5")
    folder.rmdir()
    ((name, reason),) = in_process(fd, "restore", "assert x == 5")
    os.close(fd)
    assert name == "the working directory"
    assert "FileNotFoundError" in reason


def watched_for(seconds):
    """Code that works until the watchdog has looked at it for so long."""

    def load():
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass
        return "loaded"

    return load


class TestRecipes:
    def test_a_recipe_is_kept_instead_of_the_value(self):
        with contextlib.closing(Saver()) as saver:
            saver.recipes["squares"] = "[n * n for n in range(size)]"
            saver.recipes["last"] = "squares[-1]"
            manifest = saver.save({"squares": [0], "last": 0, "size": 4}, cell=None)
            assert [name.name for name in manifest.saved] == ["size"]
            with contextlib.closing(Saver()) as second:
                namespace = {}
                report = second.restore(saver.descriptors(), namespace)
                assert second.recipes == saver.recipes
        assert namespace["squares"] == [0, 1, 4, 9]
        assert namespace["last"] == 9
        assert report.restored == ("size", "squares", "last")

    def test_one_may_take_longer_than_the_code_of_an_object(self):
        with contextlib.closing(Saver()) as saver:
            saver.recipes["model"] = "load()"
            saver.save({"model": 1}, cell=None)
            with contextlib.closing(Saver(patience_s=0.1)) as second:
                report = second.restore(saver.descriptors(), {"load": watched_for(1.0)})
        assert not report.missing
        assert report.restored == ("model",)

    def test_one_that_fails_is_named_with_its_text(self):
        with contextlib.closing(Saver()) as saver:
            saver.recipes["bad"] = "1 / zero"
            saver.save({"bad": 1, "zero": 0}, cell=None)
            report = restore(saver.descriptors(), {})
        assert report.missing[0].name == "bad"
        assert report.missing[0].reason == "its recipe '1 / zero' failed: ZeroDivisionError: division by zero"

    @pytest.mark.parametrize(("name", "text"), [("a b", "1"), ("x", "y = 1"), ("x", ""), ("x", "for")])
    def test_what_is_none_is_refused(self, name, text):
        with pytest.raises(ValueError, match=r"not a name|not an expression"):
            recipes.check(name, text)

    def test_what_is_one_is_accepted_and_can_be_computed(self):
        text, namespace = " load('a') if y else None ", {"load": str.upper, "y": True}
        recipes.check("x", text)
        assert recipes.compute({"x": text}, namespace) == (["x"], [])
        assert namespace["x"] == "A"


class Foreign:
    """What another package's library has."""

    def __init__(self, handle):
        self.handle = handle

    def __reduce__(self):
        raise TypeError("a handle of C code")


def foreign_codec(module, regions):
    assert module is sys.modules["foreign_library"]

    def reduce(foreign):
        regions.note("its connection is opened again")
        return Foreign, (foreign.handle + 1,)

    return types.SimpleNamespace(handlers=lambda: {Foreign: reduce}, lookers=dict, prepare=lambda _: None)


class TestOtherPackagesCodecs:
    def test_an_entry_point_adds_one_for_a_library_that_is_imported(self, monkeypatch):
        entry = importlib.metadata.EntryPoint("foreign_library", f"{__name__}:foreign_codec", libraries.ENTRY_POINTS)
        monkeypatch.setattr(libraries, "_entry_points", lambda: (entry,))
        assert "foreign" in Roundtrip({"foreign": Foreign(1)}).unsaved
        monkeypatch.setitem(sys.modules, "foreign_library", types.ModuleType("foreign_library"))
        result = Roundtrip({"foreign": Foreign(1)})
        assert result["foreign"].handle == 2
        assert result.manifest.changed[0].change == "its connection is opened again"

    def test_one_that_cannot_be_loaded_is_told_and_costs_nothing_else(self, monkeypatch):
        entry = importlib.metadata.EntryPoint("foreign_library", "no_such_module:codec", libraries.ENTRY_POINTS)
        monkeypatch.setattr(libraries, "_entry_points", lambda: (entry,))
        monkeypatch.setitem(sys.modules, "foreign_library", types.ModuleType("foreign_library"))
        with pytest.warns(RuntimeWarning, match="The codec for foreign_library"):
            assert Roundtrip({"x": [1]})["x"] == [1]


def test_jax_arrays_go_through_numpy_and_that_is_said(monkeypatch):
    np = pytest.importorskip("numpy")

    class ArrayImpl:
        def __init__(self, content):
            self.content, self.dtype = content, content.dtype

        def __array__(self, dtype=None, copy=None):
            return self.content

    jax = types.ModuleType("jax")
    jax.dtypes = types.SimpleNamespace(issubdtype=lambda *_: False, prng_key=None)
    jax.numpy = types.ModuleType("jax.numpy")
    jax.numpy.asarray = ArrayImpl
    implementation = types.ModuleType("jax._src.array")
    implementation.ArrayImpl = ArrayImpl
    for name, module in {"jax": jax, "jax.numpy": jax.numpy, "jax._src.array": implementation}.items():
        monkeypatch.setitem(sys.modules, name, module)
    result = Roundtrip({"a": ArrayImpl(np.arange(3))})
    assert result["a"].content.tolist() == [0, 1, 2]
    assert "goes through NumPy" in result.manifest.changed[0].change


def test_the_manifest_says_what_comes_back_otherwise():
    import functools

    @functools.lru_cache
    def cached(x):
        return x

    cached(1)
    manifest = Roundtrip({"cached": cached}, function_globals=globals()).manifest
    assert [(changed.name, changed.change) for changed in manifest.changed] == [
        ("cached", "a cached function's cache comes back empty")
    ]
    assert saved_state.Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest
