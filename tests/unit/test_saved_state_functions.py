"""A function of a cell comes back as it was in its notebook: with its namespace, and what belongs to that."""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import linecache
import traceback

import cloudpickle
import pytest
from IPython.core.interactiveshell import InteractiveShell

from nls_jupyter.saved_state import Interpreter, Saver, user_names
from saved_state_roundtrip import cells, of_user, restore, saved


def test_functions_that_come_back_leave_the_namespace_the_module_of_builtins():
    before = cells("def largest(numbers): return __builtins__.max(numbers)")
    namespace = {"__builtins__": builtins}
    with saved(user_names(before, {}), function_globals=before) as (descriptors, _):
        restore(descriptors, namespace)
    assert namespace["__builtins__"] is builtins
    assert namespace["largest"]([1, 3, 2]) == 3


def test_the_sources_of_cells_come_back_for_tracebacks_and_for_whoever_asks(monkeypatch):
    monkeypatch.setattr(linecache, "cache", {})
    shell = InteractiveShell()
    saver = Saver(None, Interpreter(shell))
    try:
        shell.run_cell("def work(n):\n    return 1 / n\n", store_history=True)
        expected = inspect.getsource(shell.user_ns["work"])
        for _ in range(2):  # the second one from a process that has never compiled the cell
            saver.save(user_names(shell.user_ns, shell.user_ns_hidden), cell=None, function_globals=shell.user_ns)
            linecache.cache.clear()
            shell = InteractiveShell()
            with contextlib.closing(saver):
                descriptors = saver.descriptors()
                saver = Saver(None, Interpreter(shell))
                saver.restore(descriptors, shell.user_ns)
            function = shell.user_ns["work"]
            assert inspect.getsource(function) == expected == "def work(n):\n    return 1 / n\n"
            assert shell.compile.format_code_name(function.__code__.co_filename) == ("Cell", "In[1]")
            with pytest.raises(ZeroDivisionError) as raised:
                function(0)
            assert traceback.extract_tb(raised.value.__traceback__)[-1].line == "return 1 / n"
    finally:
        saver.close()


def test_a_name_for_the_namespace_itself_is_the_new_one():
    before = cells("everything = globals()\nx = 1")
    namespace = {}
    with saved(user_names(before, {}), function_globals=before) as (descriptors, manifest):
        assert not manifest.missing
        assert {name.name: name.type_name for name in manifest.saved} == {"everything": "dict", "x": "int"}
        restore(descriptors, namespace)
    assert namespace["everything"] is namespace
    assert namespace["x"] == 1


def test_a_class_that_a_function_made_keeps_its_whole_name():
    before = cells(
        "def make():\n    class Inner: pass\n    return Inner\nkind = make()\nclass Outer:\n    class Inner: pass"
    )
    cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.clear()
    namespace = {}
    with saved(user_names(before, {}), function_globals=before) as (descriptors, _):
        cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.clear()  # as in a new process
        restore(descriptors, namespace)
    assert namespace["kind"] is not before["kind"]
    assert namespace["kind"].__qualname__ == "make.<locals>.Inner"
    assert namespace["Outer"].Inner.__qualname__ == "Outer.Inner"


def test_a_partial_of_a_partial_is_one_of_the_function_after_a_save_and_a_restore():
    names = cells("import functools\ndef f(*given): return given\npart = functools.partial(f, 1)")
    result = of_user(names)
    for function, part in ((names["f"], names["part"]), (result["f"], result["part"])):
        more = functools.partial(part, 2)
        assert (more.func, more.args) == (function, (1, 2))
