"""What could not be brought back is not lost: it stays saved until it is back, deleted or bound anew."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap

import numpy as np
import pytest

from nls_jupyter.saved_state import Manifest, Saver, read_manifest, user_names
from nls_jupyter.saved_state.watchdog import Watchdog


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Write a module, and take it away again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    class Modules:
        def write(self, name, source):
            self.remove(name)
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))

        def remove(self, name):
            (tmp_path / f"{name}.py").unlink(missing_ok=True)
            sys.modules.pop(name, None)
            sys.path_importer_cache.clear()

    yield Modules()
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):  # a library stays, once it is there
            del sys.modules[name]


MODEL = """
class Model:
    def __init__(self, weights):
        self.weights = weights
"""


class Processes:
    """One process after the other, each with the saved state of the one before."""

    def __init__(self):
        self.saver, self.names = Saver(), {}
        self.savers = [self.saver]

    def run(self, code):
        exec(compile(code, "<cell>", "exec"), self.names)

    def save(self) -> Manifest:
        return self.saver.save(user_names(self.names, {}), cell=None, function_globals=self.names)

    def size_bytes(self):
        return os.fstat(self.saver.descriptors()[0]).st_blocks * 512

    def next(self, **options):
        before, self.saver, self.names = self.saver, Saver(**options), {}
        self.savers.append(self.saver)
        return self.saver.restore(before.descriptors(), self.names)

    def close(self):
        for saver in self.savers:
            saver.close()


@pytest.fixture
def processes():
    with contextlib.closing(Processes()) as them:
        yield them


@pytest.fixture
def without_model(processes, modules):
    """The second process, in which the model's module is not there."""
    modules.write("net", MODEL)
    processes.run("import net, numpy\nw = numpy.arange(300_000.0)\nmodel = net.Model(w)\nother = [5]")
    del processes.names["net"]
    processes.save()
    modules.remove("net")
    report = processes.next()
    assert set(report.restored) == {"w", "other", "numpy"}
    assert [missing.name for missing in report.missing] == ["model"]
    assert report.carried == ("model",)
    return processes


def test_a_name_whose_module_is_missing_survives_saves_without_it_and_comes_back_with_the_module(
    without_model, modules
):
    for _ in range(3):
        without_model.run("other.append(6)")
        manifest = without_model.save()
        assert [(name.name, name.not_back) for name in manifest.carried] == [
            ("model", "ModuleNotFoundError: No module named 'net'")
        ]
        assert "model" not in {name.name for name in manifest.saved}
        assert read_manifest(without_model.saver.descriptors()) == manifest
        assert without_model.next().carried == ("model",)
    modules.write("net", MODEL)
    report = without_model.next()
    assert not report.missing
    assert not report.carried
    assert np.array_equal(without_model.names["model"].weights, np.arange(300_000.0))
    assert without_model.names["other"] == [5, 6, 6, 6]
    assert not without_model.save().carried


def test_it_is_tried_again_in_the_same_process(without_model, modules):
    assert without_model.saver.try_again(without_model.names).carried == ("model",)
    modules.write("net", MODEL)
    report = without_model.saver.try_again(without_model.names)
    assert report.restored == ("model",)
    assert not report.carried
    assert np.array_equal(without_model.names["model"].weights, without_model.names["w"])
    assert {name.name for name in without_model.save().saved} >= {"model", "w", "other"}


def test_what_it_shared_with_names_that_were_back_before_is_said_to_be_a_copy(without_model, modules):
    modules.write("net", MODEL)
    report = without_model.saver.try_again(without_model.names)
    assert [(name.name, name.change) for name in report.changed] == [
        ("model", "it came back later than w: what they shared, it has a copy of")
    ]


def test_names_that_came_back_together_still_share(processes, modules):
    modules.write("net", MODEL)
    processes.run("import net\nmodel = net.Model([1])\nalias = model\nholder = {'m': model}")
    del processes.names["net"]
    processes.save()
    modules.remove("net")
    assert set(processes.next().carried) == {"model", "alias", "holder"}
    processes.save()
    modules.write("net", MODEL)
    assert not processes.next().changed
    assert processes.names["model"] is processes.names["alias"] is processes.names["holder"]["m"]


@pytest.mark.parametrize("save_between", [False, True])
def test_a_name_that_is_bound_anew_is_the_users(without_model, modules, save_between):
    without_model.run("model = 'mine'")
    if save_between:
        assert not without_model.save().carried
    modules.write("net", MODEL)
    assert without_model.saver.try_again(without_model.names).restored == ()
    assert without_model.names["model"] == "mine"
    assert not without_model.save().carried
    without_model.next()
    assert without_model.names["model"] == "mine"


def test_a_name_that_nobody_wants_back_is_dropped_with_its_bytes(processes, modules):
    modules.write("net", MODEL)
    processes.run("import net, numpy\nmodel = net.Model(numpy.random.default_rng(0).random(400_000))\nother = 1")
    del processes.names["net"]
    processes.save()
    modules.remove("net")
    processes.next()
    processes.save()
    assert processes.size_bytes() > 3_000_000
    processes.saver.forget(["model"])
    assert not processes.save().carried
    assert processes.size_bytes() < 1_000_000
    modules.write("net", MODEL)
    processes.next()
    assert "model" not in processes.names


def test_a_module_that_imports_for_longer_than_the_patience_is_waited_for(processes, modules, monkeypatch):
    modules.write("slow", MODEL)
    processes.run("import slow\nmodel = slow.Model([1])")
    del processes.names["slow"]
    processes.save()
    alarms = []
    bark = Watchdog._bark
    monkeypatch.setattr(sys, "alarms_of_a_test", alarms, raising=False)
    monkeypatch.setattr(Watchdog, "_bark", lambda *args: [alarms.append(args), bark(*args)])
    modules.write("slow", "import sys\nwhile len(sys.alarms_of_a_test) < 2: pass\n" + MODEL)
    assert not processes.next(patience_s=0.5).missing
    assert len(alarms) >= 2
    assert processes.names["model"].weights == [1]


def test_results_of_cells_are_carried_over_too(modules):
    from IPython.core.interactiveshell import InteractiveShell

    from nls_jupyter.saved_state import Interpreter

    def process():
        shell = InteractiveShell()
        return shell, Saver(None, Interpreter(shell))

    modules.write("net", MODEL)
    shell, saver = process()
    shell.run_cell("import net; net.Model([1])", store_history=True)
    number = max(shell.user_ns["_oh"])
    saver.save({"x": 1}, cell=None, function_globals=shell.user_ns)
    modules.remove("net")
    second, other = process()
    with contextlib.closing(saver), contextlib.closing(other):
        assert f"Out[{number}]" in other.restore(saver.descriptors(), second.user_ns).carried
        other.save({"x": 1}, cell=None, function_globals=second.user_ns)
        modules.write("net", MODEL)
        other.try_again(second.user_ns)
        assert second.user_ns["_oh"][number].weights == [1]
        assert f"Out[{number}]" not in second.user_ns


def test_what_a_cell_left_in_a_module_of_its_own_waits_for_the_module(modules):
    from IPython.core.interactiveshell import InteractiveShell

    from nls_jupyter.saved_state import Interpreter

    def process():
        shell = InteractiveShell()
        return shell, Saver(None, Interpreter(shell))

    with contextlib.ExitStack() as stack:
        shell, saver = process()
        stack.enter_context(contextlib.closing(saver))
        modules.write("helpers", "REGISTRY = {}\n")
        shell.run_cell("import helpers; helpers.REGISTRY['a'] = [1]; del helpers")
        saver.save({"x": 1}, cell=None, function_globals=shell.user_ns)
        modules.remove("helpers")
        shell, other = process()
        stack.enter_context(contextlib.closing(other))
        assert other.restore(saver.descriptors(), shell.user_ns).carried == ("helpers:REGISTRY",)
        modules.write("helpers", "REGISTRY = {}\n")
        # The cell that mends it imports it too: as the import left it, the module is not what the user has.
        shell.run_cell("import helpers")
        assert [name.name for name in other.save({"x": 1}, cell=None, function_globals=shell.user_ns).carried] == [
            "helpers:REGISTRY"
        ]
        assert not other.try_again(shell.user_ns).carried
        assert sys.modules["helpers"].REGISTRY == {"a": [1]}
