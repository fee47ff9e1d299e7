"""What puts other classes in the place of pandas' and scikit-learn's is there again before the names come back.

The stand-ins do what RAPIDS 26.10 does: `%load_ext cudf.pandas` and `%load_ext cuml.accel` call `install`, which does
nothing the second time (`cudf/pandas/__init__.py`, `cuml/accel/core.py`). Objects made under them lead to names of
pandas that are other classes without, and these take anything for their state.
"""

from __future__ import annotations

import contextlib
import sys
import types

import pytest

from nls_jupyter.saved_state import Interpreter, Saver, user_names


class Slow:
    """As pandas' own: of what it does not know it makes an empty shell."""

    def __setstate__(self, state):
        pass


class Proxy(Slow):
    def __reduce__(self):
        return make, (), {"content": self.content}

    def __setstate__(self, state):
        self.content = state["content"]


def make():
    frame = sys.modules["accelerated"].Frame
    return frame.__new__(frame)


def accelerator(monkeypatch, name):
    """An accelerator as a new process has it: imported, or to be, and off."""
    package, module = types.ModuleType(name.partition(".")[0]), types.ModuleType(name)
    module.LOADED, module.enabled = False, lambda: module.LOADED
    accelerated = types.ModuleType("accelerated")
    accelerated.Frame = Slow

    def install():
        module.LOADED, accelerated.Frame = True, Proxy

    module.install = install
    for found in (package, module, accelerated):
        monkeypatch.setitem(sys.modules, found.__name__, found)
    return module


@pytest.mark.parametrize("name", ["cudf.pandas", "cuml.accel"])
@pytest.mark.parametrize("on", [True, False])
def test_an_accelerator_is_on_again_before_its_objects_come_back(monkeypatch, name, on):
    module = accelerator(monkeypatch, name)
    frame = Proxy()
    frame.content = 5
    again = {}
    with contextlib.closing(Saver(interpreter=Interpreter())) as saver:
        if on:
            module.install()
        manifest = saver.save(user_names({"frame": frame, "x": 1}, {}), cell=None)
        assert [name.name for name in manifest.saved] == ["frame", "x"]
        module = accelerator(monkeypatch, name)
        with contextlib.closing(Saver(interpreter=Interpreter())) as new:
            new.restore(saver.descriptors(), again)
    assert module.LOADED is on
    assert (type(again["frame"]), vars(again["frame"])) == ((Proxy, {"content": 5}) if on else (Slow, {}))
