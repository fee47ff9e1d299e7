"""No single object, whatever it does while it is saved or made again, costs more than the names that lead to it."""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hostile_objects import HOSTILE, hostile
from nls_jupyter.gpu_process.warm_imports import Imports
from nls_jupyter.saved_state import Interpreter, Saver
from nls_jupyter.saved_state.modules import LOADERS, UserModules
from saved_state_roundtrip import restore

OF_A_TEST = "hostile_of_a_test"
HEALTHY = {"number": 5, "list": [1, [2]], "text": "three", "pairs": {"a": (1, 2)}}
CONTAINERS = {
    "itself": lambda thing: thing,
    "a list": lambda thing: [1, thing, 2],
    "a tuple": lambda thing: (thing, [thing]),
    "a dict": lambda thing: {"key": thing, "other": [3]},
    "an instance": lambda thing: Holder(thing),
}


class Holder:
    def __init__(self, thing):
        self.thing = thing


@pytest.fixture(autouse=True, scope="module")
def _what_is_there_before_is_no_garbage():
    """Or each test would look through all that others have imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def unraisable():
    """What an object raises at its end nobody can catch; pytest would fail for it, here or in a later test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda _: None)
        yield
        vars(sys).pop(OF_A_TEST, None)
        gc.collect()


def came_back(names, function_globals):
    """The names as a new process has them, and the reasons of those that are not there."""
    with contextlib.closing(Saver()) as saver:
        manifest = saver.save(names, cell=None, function_globals=function_globals)
        # A class of a cell is made anew, as in a new process.
        cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.clear()
        namespace = {}
        report = restore(saver.descriptors(), namespace)
    missing = {lost.name: lost.reason for lost in (*manifest.missing, *report.missing)}
    return namespace, missing


def check(names, ill, function_globals):
    namespace, missing = came_back(names, function_globals)
    for name, value in HEALTHY.items():
        assert namespace[name] == value
    assert not missing.keys() & HEALTHY.keys()
    for name in ill:
        assert (name in namespace) != bool(missing.get(name))
    assert namespace.keys() <= {*names, "__builtins__"}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_object_costs_nobody_else_anything_wherever_it_is_held(what):
    thing, function_globals = hostile(what)
    ill = {f"ill {way}": hold(thing) for way, hold in CONTAINERS.items()}
    check({**ill, **HEALTHY}, ill, function_globals)


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_every_healthy_name_is_back_and_each_hostile_one_is_back_or_named(data):
    chosen = data.draw(st.lists(st.sampled_from(sorted(HOSTILE)), min_size=1, max_size=4))
    ways = st.sampled_from(sorted(CONTAINERS))
    ill, function_globals = {}, {}
    for number, what in enumerate(chosen):
        thing, function_globals = hostile(what)
        for way in data.draw(st.lists(ways, min_size=1, max_size=2)):
            ill[f"ill{number} {way}"] = CONTAINERS[way](thing)
        if data.draw(st.booleans()):
            ill[f"together{number}"] = list(ill.values())
    names = list({**ill, **HEALTHY}.items())
    check(dict(data.draw(st.permutations(names))), ill, function_globals)


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_object_in_a_module_of_the_users_own_costs_neither_its_import_nor_a_save(what, tmp_path, monkeypatch):
    thing, _ = hostile(what)
    monkeypatch.syspath_prepend(str(tmp_path))
    for loader in LOADERS:
        monkeypatch.setattr(loader, "exec_module", loader.exec_module)
    setattr(sys, OF_A_TEST, thing)
    (tmp_path / "helpers_beside.py").write_text(f"import sys\nILL = sys.{OF_A_TEST}\nWELL = [1]\n")
    modules = UserModules()
    modules.follow()
    try:
        helpers = importlib.import_module("helpers_beside")
        helpers.WELL = [2]
        with contextlib.closing(Saver()) as saver:
            saved = {name.name for name in saver.save(modules.names(), cell=None).saved}
        assert "helpers_beside:WELL" in saved
    finally:
        sys.modules.pop("helpers_beside", None)


@pytest.mark.parametrize("what", HOSTILE)
def test_which_modules_to_import_early_is_told_whatever_else_there_is(what):
    assert Imports().names({"ill": hostile(what)[0]}) == []


def test_settings_whose_return_fails_as_a_whole_are_named_and_cost_no_name():
    class Exits(Interpreter):
        def apply(self, *_, **__):
            raise SystemExit(3)

    with contextlib.closing(Saver(None, Interpreter())) as saver:
        saver.save(HEALTHY, cell=None)
        with contextlib.closing(Saver(None, Exits())) as second:
            report = second.restore(saver.descriptors(), {})
    assert set(report.restored) == set(HEALTHY)
    assert {(lost.name, lost.reason) for lost in report.missing} == {("settings", "SystemExit: 3")}
