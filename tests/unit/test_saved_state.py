"""Saved state: names, what they share, functions and classes of cells, and what cannot be saved."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import sys
import threading
import types
import weakref
from pathlib import Path

import pytest

from nls_jupyter import saved_state
from nls_jupyter.saved_state import Manifest, MissingName, SavedStateDamagedError, SaveStoppedError, user_names
from saved_state_roundtrip import Roundtrip, check_in_a_new_process, restore, roundtrip, saved, taken


def open_files():
    """What each descriptor leads to; without the one that this look itself needs."""
    found = {}
    for entry in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):
            found[entry.name] = str(entry.readlink())
    return found


class TestUserNames:
    def test_ipythons_own_names_are_not_the_users(self):
        names = "In Out _ __ ___ _i _ii _iii _i1 _12 _dh _oh _ih exit quit get_ipython _exit_code __name__ __builtins__"
        assert user_names(dict.fromkeys(names.split()), {}) == {}

    def test_a_leading_underscore_is_the_users(self):
        names = {"_private": 1, "_x1": 2, "x_": 3, "_input": 4, "Input": 5, "_i_mine": 6}
        assert user_names(names, {}) == names

    def test_what_cells_say_of_themselves_comes_back(self):
        names = {}
        cell = "__version__ = '1.2'\n__all__ = ['x']\nx: list[int] = [1]\ny: 'text'"
        exec(compile(cell, "cell", "exec", dont_inherit=True), names)
        result = Roundtrip(user_names(names, {}))
        assert not result.unsaved
        assert (result["__version__"], result["__all__"]) == ("1.2", ["x"])
        assert result.namespace.get("__annotations__") == names.get("__annotations__")  # Python 3.14 makes it later

    def test_a_hidden_name_becomes_the_users_when_it_is_bound_anew(self):
        hidden = {"open": open, "display": print}
        assert user_names({"open": open, "display": len, "x": 1}, hidden) == {"display": len, "x": 1}

    def test_a_name_that_a_thread_binds_meanwhile_hinders_nobody(self) -> None:
        names: dict[str, object] = {"x": 1, "y": 2}

        class Meanwhile(dict[str, object]):
            def __contains__(self, name: object) -> bool:
                names["later"] = 3
                return False

        assert user_names(names, Meanwhile()) == {"x": 1, "y": 2}


class TestManifest:
    def test_it_names_what_was_saved_and_what_was_not(self):
        result = roundtrip("import math\nx = list(range(1000))\ndef f(): pass\nlock = (i for i in ())")
        saved = {name.name: name for name in result.manifest.saved}
        assert {name: saved[name].type_name for name in saved} == {"math": "module", "x": "list", "f": "function"}
        assert saved["x"].memory_bytes > 1000
        assert {name.where for name in saved.values()} == {"host"}
        assert result.manifest.missing == (MissingName("lock", "generator", "a generator cannot be saved"),)
        assert result.manifest.memory_bytes == sum(name.memory_bytes for name in saved.values())
        assert result.manifest.cell == "5"
        assert result.report.restored == ("math", "f", "x")

    def test_it_survives_json(self):
        manifest = roundtrip("x = 1\ng = (i for i in [])").manifest
        assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest

    def test_the_kernel_reads_it_without_unpickling(self):
        with saved({"x": 1}) as (descriptors, manifest):
            assert saved_state.read_manifest(descriptors) == manifest

    def test_shared_memory_counts_once(self):
        shared = bytes(100_000)
        manifest = Roundtrip({"a": [shared], "b": [shared]}).manifest
        assert [name.memory_bytes > 100_000 for name in manifest.saved] == [True, False]


class TestFileDescriptor:
    def test_it_is_closed_on_exec(self):
        with saved({"x": bytearray(10)}) as (descriptors, _):
            assert [os.get_inheritable(fd) for fd in descriptors] == [False]

    def test_nothing_stays_open_but_the_result(self):
        before = open_files()
        Roundtrip({"x": 1, "lock": taken()})
        assert open_files() == before

    def test_an_interrupted_save_leaves_nothing_open(self):
        class Interrupts:
            def __reduce__(self):
                raise SaveStoppedError

        gc.collect()  # what tests before this one have left is not to be closed meanwhile
        before = open_files()
        with pytest.raises(SaveStoppedError):
            Roundtrip({"x": Interrupts()})
        gc.collect()
        assert open_files() == before

    def test_it_can_be_restored_again_and_again(self):
        first, second = {}, {}
        with saved({"x": [1]}) as (descriptors, _):
            restore(descriptors, first)
            restore(descriptors, second)
        assert first == second == {"x": [1]}
        assert first["x"] is not second["x"]

    @pytest.mark.parametrize("content", [b"", b"not a saved state" * 10, b"NLSARENA" + b"\xff" * 100])
    def test_anything_else_is_refused(self, content):
        fd = os.memfd_create("test")
        os.write(fd, content)
        with pytest.raises(SavedStateDamagedError):
            restore([fd], {})
        os.close(fd)

    def test_no_names_are_a_saved_state_too(self):
        assert Roundtrip({}).report.restored == ()

    def test_saving_keeps_nothing_alive(self):
        class Thing:
            pass

        thing = Thing()
        gone = weakref.ref(thing)
        gc.disable()  # Gpu memory must not wait for the collector
        try:
            Roundtrip({"thing": thing, "bad": [thing, taken()], "after": 1})
            del thing
            assert gone() is None
        finally:
            gc.enable()


class TestIdentity:
    def test_two_names_of_one_object_stay_one_object(self):
        shared = [1]
        result = Roundtrip({"a": shared, "b": shared, "c": {"in": shared}, "d": (shared, shared)})
        assert result["a"] is result["b"] is result["c"]["in"] is result["d"][0] is result["d"][1]

    def test_equal_objects_stay_two(self):
        result = Roundtrip({"a": [1], "b": [1]})
        assert result["a"] is not result["b"]

    def test_cycles_between_names_survive(self):
        a, b = [], {}
        a.append(b)
        b["a"] = a
        result = Roundtrip({"a": a, "b": b})
        assert result["a"][0] is result["b"]
        assert result["b"]["a"] is result["a"]

    def test_a_namespace_that_was_there_keeps_its_other_names(self):
        namespace = {"x": 0, "other": 2}
        with saved({"x": 1}) as (descriptors, _):
            restore(descriptors, namespace)
        assert namespace == {"x": 1, "other": 2}

    def test_out_of_band_buffers_come_back_as_memory_of_their_own(self):
        import array

        values = array.array("d", [1.5, 2.5])
        result = Roundtrip({"plain": bytearray(b"abc"), "values": values, "big": bytes(1 << 20)})
        assert result["plain"] == b"abc"
        assert result["values"] == values
        assert len(result["big"]) == 1 << 20


class TestCells:
    def test_a_functions_globals_are_the_restored_namespace(self):
        result = roundtrip("factor = 2\ndef double(x): return x * factor\ndef indirect(x): return double(x)")
        assert result["double"].__globals__ is result.namespace
        assert result["indirect"](4) == 8
        result.namespace["factor"] = 10
        assert result["indirect"](4) == 40
        result.namespace["double"] = lambda x: -x
        assert result["indirect"](4) == -4

    def test_a_function_refers_to_the_restored_object_and_not_to_a_copy(self):
        result = roundtrip("seen = []\ndef note(x): seen.append(x)")
        result["note"](1)
        assert result["seen"] == [1]

    def test_a_function_does_not_bring_back_a_name_that_was_not_saved(self):
        result = roundtrip("lock = __import__('threading').Lock(); taken = lock.acquire()\ndef f(): return lock")
        assert result.unsaved == {"lock": "a lock that is taken cannot be saved"}
        with pytest.raises(NameError, match="lock"):
            result["f"]()

    def test_functions_of_one_scope_go_on_sharing_its_variables(self):
        result = roundtrip(
            "def counter():\n n = 0\n def inc():\n  nonlocal n\n  n += 1\n def get(): return n\n return inc, get\n"
            "inc, get = counter()\ninc()"
        )
        result["inc"]()
        assert result["get"]() == 2

    def test_functions_that_lead_back_to_themselves_survive(self):
        result = roundtrip(
            "def make():\n def even(n): return n == 0 or odd(n - 1)\n def odd(n): return n != 0 and even(n - 1)\n"
            " return even, odd\neven, odd = make()\n"
            "def late():\n def f(): return unbound\n return f\n if 0: unbound = 1\nf = late()"
        )
        assert result["even"](10)
        assert result["even"].__closure__[0].cell_contents is result["odd"]
        with pytest.raises(NameError):
            result["f"]()

    def test_instances_stay_instances_of_their_class(self):
        result = roundtrip(
            "import dataclasses, enum\n"
            "class Base:\n count = 0\n def hi(self): return ('base', self.count)\n"
            "class Child(Base):\n def hi(self): return (*super().hi(), 'child')\n"
            "class Color(enum.Enum):\n RED = 1\n"
            "@dataclasses.dataclass\nclass Point:\n x: int\n"
            "child = Child(); child.count = 3; red = Color.RED; point = Point(1)"
        )
        assert isinstance(result["child"], result["Base"])
        assert type(result["child"]) is result["Child"]
        assert result["child"].hi() == ("base", 3, "child")
        assert result["red"] is result["Color"].RED
        assert result["point"] == result["Point"](1)

    def test_lambdas_defaults_attributes_and_methods_survive(self):
        result = roundtrip(
            "import functools\nbase = 10\nadd = lambda x, y=[1], *, z=2: x + y[0] + z + base\nadd.tag = 'kept'\n"
            "class A:\n def __init__(self, v): self.v = v\n def get(self): return self.v + base\n"
            "a = A(1); bound = a.get; part = functools.partial(add, 5)\n"
        )
        assert (result["add"](1), result["add"].tag, result["bound"](), result["part"]()) == (14, "kept", 11, 18)
        result["a"].v = 7
        assert result["bound"]() == 17

    def test_modules_come_back_by_name_with_the_submodules_that_were_imported(self):
        check_in_a_new_process(
            "import math as m\nimport xml.etree.ElementTree\nimport collections.abc",
            "import math\nassert m is math\nassert xml.etree.ElementTree.Element('a').tag == 'a'",
        )

    def test_an_installed_module_that_has_executed_itself_once_more_comes_back(self, tmp_path):
        """As transformers does while it is used: the name is of the first one."""
        package = tmp_path / "site-packages" / "twice"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("x = 1\n")
        (package / "more.py").write_text(
            "import importlib.util, sys\nspec = sys.modules['twice'].__spec__\n"
            "sys.modules['twice'] = importlib.util.module_from_spec(spec)\n"
            "spec.loader.exec_module(sys.modules['twice'])\n"
        )
        check_in_a_new_process(
            f"import sys; sys.path.insert(0, {str(package.parent)!r})\nimport twice\nimport twice.more as more\n"
            "assert sys.modules['twice'] is not twice",
            "assert twice.x == 1 and twice.__name__ == 'twice'",
        )

    def test_modules_that_cannot_be_imported_again_are_named(self):
        by_hand, registered = types.ModuleType("by_hand"), types.ModuleType("registered_by_hand")
        sys.modules["registered_by_hand"] = registered
        try:
            result = Roundtrip({"a": by_hand, "b": registered})
        finally:
            del sys.modules["registered_by_hand"]
        assert result.unsaved == {
            "a": "a module, by_hand, that was made by hand cannot be saved",
            "b": "a module, registered_by_hand, that cannot be imported cannot be saved",
        }

    def test_all_of_it_works_in_a_new_process(self):
        check_in_a_new_process(
            "import numpy as np, enum, collections\n"
            "class Scale:\n def __init__(self, by): self.by = by\n def __call__(self, x): return x * self.by * unit\n"
            "class Kind(enum.Enum):\n A = 'a'\n"
            "Pair = collections.namedtuple('Pair', 'x y')\n"
            "unit = np.ones(3)\nscale = Scale(2)\nscales = {Kind.A: scale}\nrow = unit[1:]\npair = Pair(1, scale)\n"
            "def total(x): return float(scales[Kind.A](x).sum())\n",
            "assert total(1) == 6\nunit[:] = 2\nassert total(1) == 12 and row.tolist() == [2, 2]\n"
            "assert isinstance(scale, Scale) and pair.y is scale and type(pair) is Pair\n"
            "assert total.__globals__ is globals() and Kind('a') is Kind.A\n",
        )


class Refuses:
    def __init__(self, error=None):
        self.error = error or ValueError("no\n  way")

    def __reduce__(self):
        raise self.error


class TestWhatCannotBeSaved:
    def test_it_is_named_with_its_reason_and_the_rest_is_kept(self, tmp_path):
        with (tmp_path / "file").open("w") as file:
            result = Roundtrip(
                {
                    "before": [1],
                    "file": file,
                    "generator": (i for i in ()),
                    "lock": taken(),
                    "thread": threading.Thread(),
                    "holder": {"deep": [taken(threading.RLock())]},
                    "refuses": Refuses(),
                    "silent": Refuses(ValueError()),
                    "local": type("Mine", (threading.local,), {})(),
                    "after": [2],
                }
            )
        assert {name: result[name] for name in result.namespace} == {"before": [1], "after": [2]}
        assert result.unsaved == {
            "file": "an open file cannot be saved",
            "generator": "a generator cannot be saved",
            "lock": "a lock that is taken cannot be saved",
            "thread": "a thread cannot be saved",
            "holder": "it holds a lock that is taken",
            "refuses": "it cannot be pickled (ValueError: no way)",
            "silent": "it cannot be pickled (ValueError)",
            "local": "it cannot be pickled",
        }

    def test_an_open_file_is_not_turned_into_its_content(self):
        with open(__file__, "r+", encoding="utf-8") as file:  # noqa: PTH123 - as users do
            assert Roundtrip({"file": file}).unsaved == {"file": "an open file cannot be saved"}

    def test_whoever_shares_a_part_with_it_is_kept_and_whoever_holds_it_is_not(self):
        part, bad = [1], [taken()]
        result = Roundtrip({"bad": [part, bad], "good": [part], "also_bad": bad, "part": part})
        assert set(result.unsaved) == {"bad", "also_bad"}
        assert result["good"][0] is result["part"]

    def test_too_deep_nesting_is_a_reason_too(self):
        deep = []
        for _ in range(200_000):
            deep = [deep]
        result = Roundtrip({"before": 1, "deep": deep, "after": 2})
        assert result.unsaved == {"deep": "it is nested too deeply to be saved"}
        assert result.namespace == {"before": 1, "after": 2}
        while deep:  # freed step by step
            deep = deep.pop()

    def test_a_thousand_names_of_which_half_fail_take_work_in_proportion(self):
        visits = 0

        class Counts:
            def __reduce__(self):
                nonlocal visits
                visits += 1
                return math.sqrt, (4,)

        counted = [Counts() for _ in range(100)]
        names = {"counted": counted}
        for number in range(500):
            names |= {f"good{number}": [counted, number], f"bad{number}": Refuses()}
        result = Roundtrip(names)
        assert len(result.unsaved) == 500
        assert len(result.report.restored) == 501
        assert result["good7"][0] is result["counted"]
        assert visits <= 300

    def test_a_full_memory_is_not_blamed_on_the_names(self, monkeypatch):
        from nls_jupyter.saved_state import arena

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(arena, "_pwrite", full)
        with pytest.raises(OSError, match="No space"):
            Roundtrip({"x": bytes(1 << 20)})


class Brittle:
    """Pickles well; what it does when it is made again is set from outside."""

    when_made = staticmethod(lambda: None)

    def __init__(self, content=None):
        self.content = content

    def __setstate__(self, state):
        type(self).when_made()
        self.__dict__.update(state)


def fail():
    raise RuntimeError("broken here")


class Rebuilt:
    def __init__(self, content=None):
        self.content = content

    def __reduce__(self):
        return rebuild, (self.content,)


rebuilding = types.SimpleNamespace(fails=False)


def rebuild(content):
    if rebuilding.fails:
        raise RuntimeError("cannot be rebuilt")
    return Rebuilt(content)


class TestWhatCannotBeRestored:
    def restore_broken(self, names, monkeypatch):
        namespace = {}
        with saved(names) as (descriptors, manifest):
            assert not manifest.missing
            monkeypatch.setattr(Brittle, "when_made", staticmethod(fail))
            monkeypatch.setattr(rebuilding, "fails", True)
            report = restore(descriptors, namespace)
        assert set(report.restored) == set(namespace)
        return namespace, {missing.name: missing.reason for missing in report.missing}

    @pytest.mark.parametrize("kind", [Brittle, Rebuilt])
    def test_it_does_not_lose_the_others_nor_what_they_share(self, kind, monkeypatch):
        first, last = ["first"], ["last"]
        names = {"a": [first, kind(), last], "b": [last, first], "c": last, "d": {"first": first}, "e": "end"}
        namespace, missing = self.restore_broken(names, monkeypatch)
        assert set(missing) == {"a"}
        assert namespace == {"b": [["last"], ["first"]], "c": ["last"], "d": {"first": ["first"]}, "e": "end"}
        assert namespace["b"][0] is namespace["c"]
        assert namespace["b"][1] is namespace["d"]["first"]

    @pytest.mark.parametrize("kind", [Brittle, Rebuilt])
    def test_whoever_leads_to_it_is_missing_with_its_reason(self, kind, monkeypatch):
        broken = kind([1])
        holder = {"deep": [(broken,)]}
        cycle = [holder]
        cycle.append(cycle)
        names = {
            "broken": broken,
            "holder": holder,
            "cycle": cycle,
            "key": {broken: 1},
            "inside": {broken},
            "frozen": frozenset([broken]),
            "attribute": types.SimpleNamespace(of=broken),
            "default": (lambda x=broken: x),
            "fine": [1],
        }
        namespace, missing = self.restore_broken(names, monkeypatch)
        assert namespace == {"fine": [1]}
        assert set(missing) == set(names) - {"fine"}
        assert all("broken here" in reason or "cannot be rebuilt" in reason for reason in missing.values())

    def test_arrays_and_buffers_after_it_are_read_from_their_own_places(self, monkeypatch):
        np = pytest.importorskip("numpy")
        base = np.arange(6)
        names = {
            "bad": Rebuilt(np.ones(3)),
            "masked": np.ma.masked_array([1.0, 2.0], [0, 1]),
            "base": base,
            "view": base[::-2],
            "objects": np.array([1, Rebuilt(2)], dtype=object),
        }
        namespace, missing = self.restore_broken(names, monkeypatch)
        assert set(missing) == {"bad", "objects"}
        assert namespace["masked"].sum() == 1
        namespace["base"][:] = 7
        assert namespace["view"].tolist() == [7, 7, 7]

    def test_a_module_that_is_gone_takes_only_those_who_need_it(self, tmp_path, monkeypatch):
        (tmp_path / "passing_module.py").write_text("class A: pass\ndef f(): return 1\n", encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        import passing_module

        names = {"module": passing_module, "f": passing_module.f, "a": [passing_module.A()], "x": [1], "math": math}
        namespace = {}
        with saved(names) as (descriptors, _):
            monkeypatch.setitem(sys.modules, "passing_module", None)
            report = restore(descriptors, namespace)
        assert namespace == {"x": [1], "math": math}
        assert {missing.name: missing.type_name for missing in report.missing} == {
            "module": "module",
            "f": "function",
            "a": "list",
        }
        assert all("passing_module" in missing.reason for missing in report.missing)


REASONS = {
    "import hashlib; x = hashlib.md5()": "it cannot be pickled",
    "import hashlib; x = [hashlib.md5()]": "it holds a HASH, which cannot be pickled",
    "class K:\n    def __reduce__(self): raise ValueError('no')\nx = K()": ("it cannot be pickled (ValueError: no)"),
}


@pytest.mark.parametrize(("cell", "reason"), REASONS.items())
def test_a_reason_is_a_clause_for_people(cell, reason):
    assert roundtrip(cell).unsaved == {"x": reason}


def test_moments_of_one_zone_are_so_in_the_next_process():
    """Python subtracts two of one zone as a clock on the wall does, and of two zones in UTC, be these equal or not."""
    before = """
import datetime
class Zone(datetime.tzinfo):
    def utcoffset(self, moment): return datetime.timedelta(hours=1 + (moment.month > 3))
    def dst(self, moment): return datetime.timedelta()
zone = Zone()
march, june = (datetime.datetime(2024, month, 1, tzinfo=zone) for month in (3, 6))
hours = {"of": [datetime.time(3, fold=1, tzinfo=zone)]}
"""
    after = """
assert june - march == datetime.timedelta(days=92)
assert hours["of"][0].tzinfo is zone and hours["of"][0].fold == 1
"""
    check_in_a_new_process(before, after)


def test_a_class_of_a_metaclass_in_c_costs_nobody_else_anything():
    """pybind11's metaclass lets nobody take away what pickle has noted in a class."""
    pytest.importorskip("contourpy")
    result = roundtrip("import contourpy\nlines = contourpy.contour_generator(z=[[0, 1], [1, 0]])\nkept = 5")
    assert result["kept"] == 5
    assert list(result.unsaved) == ["lines"]
