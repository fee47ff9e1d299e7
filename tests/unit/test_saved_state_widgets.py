"""Widgets come back with their state, their callbacks and their comms' ids; nothing is opened or closed on the page."""

from __future__ import annotations

import contextlib
import gc

import comm
import pytest
from comm.base_comm import BaseComm, CommManager
from IPython.core.interactiveshell import InteractiveShell

from nls_jupyter import saved_state
from nls_jupyter.saved_state import Saver, user_names
from nls_jupyter.saved_state.graph import Graph
from nls_jupyter.saved_state.pickler import Rules
from saved_state_roundtrip import cells

ipywidgets = pytest.importorskip("ipywidgets")
from ipywidgets.widgets import widget as registry  # noqa: E402 - only where there is the package

SETUP = "import ipywidgets as widgets\nfrom traitlets import All, HasTraits, Int\nseen = []\n"


class Page:
    """What frontends would get, and what the notebook's kernel would be told."""

    def __init__(self, patch):
        self.messages, self.told = [], []
        page = self

        class Comm(BaseComm):
            def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
                del metadata, buffers, keys
                page.messages.append((msg_type, self.comm_id, data))

        self.manager = CommManager()
        patch.setattr(comm, "create_comm", Comm)
        patch.setattr(comm, "get_comm_manager", lambda: self.manager)
        patch.setattr(registry, "_instances", {})

    def sends(self, thing, **state):
        """As the user moves it."""
        data = {"method": "update", "state": state, "buffer_paths": []}
        self.manager.comms[thing.model_id].handle_msg({"content": {"data": data}, "buffers": []})

    def clicks(self, button):
        data = {"method": "custom", "content": {"event": "click"}}
        self.manager.comms[button.model_id].handle_msg({"content": {"data": data}, "buffers": []})

    def next_process(self, source, *, names=()):
        """Run cells, save, and restore as a new process does, with this page before it; what came back."""
        before = cells(SETUP + source)
        kept = {name: value for name, value in user_names(before, {}).items() if not names or name in names}
        with contextlib.closing(Saver()) as saver:
            manifest = saver.save(kept, cell=None, function_globals=before)
            for one in self.manager.comms.values():
                one._closed = True  # a killed process says nothing
            before.clear(), kept.clear(), registry._instances.clear(), gc.collect()
            self.manager.comms.clear()
            self.messages.clear()
            namespace = {}
            with contextlib.closing(Saver()) as second:
                report = second.restore(saver.descriptors(), namespace)
                saved_state.reconnect(self.told.append, all_back=not report.missing)
        self.missing = {lost.name: lost.reason for lost in (*manifest.missing, *report.missing)}
        return namespace


@pytest.fixture
def page(monkeypatch):
    page = Page(monkeypatch)
    yield page
    for one in page.manager.comms.values():
        one._closed = True
    registry._instances.clear()
    gc.collect()


def test_a_slider_comes_back_under_its_id_with_its_value_and_goes_on_with_the_page(page):
    names = page.next_process(
        "slider = widgets.IntSlider(value=3, description='s')\n"
        "slider.observe(lambda change: seen.append(change['new']), 'value')\nmodel_id = slider.model_id"
    )
    slider = names["slider"]
    assert not page.missing
    assert (slider.value, slider.description, slider.model_id) == (3, "s", names["model_id"])
    assert {"comm_id": slider.model_id, "target_name": "jupyter.widget"} in page.told
    assert {kind for kind, *_ in page.messages} == {"comm_msg"}
    sent = next(data for _, comm_id, data in page.messages if comm_id == slider.model_id)
    assert (sent["method"], sent["state"]["value"]) == ("update", 3)
    page.sends(slider, value=8)
    assert slider.value == 8
    assert names["seen"] == [8]
    page.messages.clear()
    slider.value = 2
    assert names["seen"] == [8, 2]
    assert any(data["state"] == {"value": 2} for _, _, data in page.messages)


def test_buttons_boxes_links_and_interactions_come_back(page):
    names = page.next_process(
        "button = widgets.Button(description='go')\nbutton.on_click(lambda b: seen.append(b.description))\n"
        "a, b = widgets.IntText(1), widgets.IntText(2)\nlink = widgets.link((a, 'value'), (b, 'value'))\n"
        "box = widgets.VBox([button, a])\nout = widgets.Output()\n"
        "@widgets.interact(x=(0, 10))\ndef square(x=2): seen.append(x * x)\nseen.clear()"
    )
    assert not page.missing
    assert names["box"].children == (names["button"], names["a"])
    page.clicks(names["button"])
    page.sends(names["a"], value=9)
    assert names["b"].value == 9
    page.sends(names["square"].widget.children[0], value=4)
    assert names["seen"] == ["go", 16]


def test_observers_of_all_traits_and_of_objects_that_are_no_widgets_come_back(page):
    names = page.next_process(
        "class Model(HasTraits):\n    size = Int(1)\n"
        "model = Model()\nmodel.observe(lambda change: seen.append((change['name'], change['new'])), All)"
    )
    assert not page.missing
    names["model"].size = 7
    assert names["seen"] == [("size", 7)]


def test_a_comm_of_ones_own_comes_back_with_what_it_calls(page):
    names = page.next_process(
        "import comm\nmine = comm.create_comm(target_name='mine')\nmine.on_msg(lambda message: seen.append(message))"
    )
    assert not page.missing
    assert page.told == [{"comm_id": names["mine"].comm_id, "target_name": "mine"}]
    page.manager.comms[names["mine"].comm_id].handle_msg("message")
    assert names["seen"] == ["message"]


def test_a_widget_that_does_not_come_back_says_nothing_to_the_page(page):
    page.next_process(
        "class Bad:\n    def __reduce__(self): return int, ('no',)\nheld = [widgets.IntSlider(), Bad()]", names=["held"]
    )
    assert list(page.missing) == ["held"]
    gc.collect()
    assert (page.told, page.messages) == ([], [])


def test_one_that_its_cell_has_closed_stays_closed(page):
    names = page.next_process("slider = widgets.IntSlider()\nmodel_id = slider.model_id\nslider.close()")
    assert not page.missing
    assert names["slider"].comm is None
    assert names["model_id"] not in {comm["comm_id"] for comm in page.told}


def test_a_bar_of_tqdm_comes_back(page):
    pytest.importorskip("tqdm")
    names = page.next_process("from tqdm.notebook import tqdm\nbar = tqdm(range(3), display=False)\nbar.update(1)")
    assert not page.missing
    assert names["bar"].n == 1


def test_widgets_that_share_nothing_are_saved_apart_and_again_only_when_they_have_changed():
    names = {f"slider{number}": ipywidgets.IntSlider() for number in range(3)}

    def digests():
        rules = Rules(())
        graph = Graph(rules.lookers, rules.leaves, (), lambda: None)
        for name, value in names.items():
            graph.add(name, value)
        return {component.names[0]: component.digest for component in graph.components()}

    before = digests()
    assert before.keys() == names.keys()
    assert None not in before.values()
    assert digests() == before
    names["slider1"].value = 5
    names["slider2"].observe(print, "value")
    after = digests()
    assert [after[name] == before[name] for name in names] == [True, False, False]


def test_nothing_behind_ipython_itself_is_looked_at():
    shell, shared = InteractiveShell(), [1]
    shell.user_ns["shared"] = shared
    rules = Rules(())
    graph = Graph(rules.lookers, rules.leaves, (), lambda: None)
    graph.add("ip", shell)
    graph.add("shared", shared)
    assert [component.names for component in graph.components()] == [["ip"], ["shared"]]


def test_a_widget_that_cannot_send_its_state_costs_the_others_nothing(page):
    with pytest.warns(RuntimeWarning, match=r"a widget could not be connected again: ValueError: no state"):
        names = page.next_process(
            "class Bad(widgets.IntSlider):\n"
            "    def get_state(self, *args, **more):\n"
            "        if seen: raise ValueError('no state')\n"
            "        return super().get_state(*args, **more)\n"
            "bad, good = Bad(), widgets.IntSlider(value=3)\nseen.append(1)"
        )
    assert not page.missing
    page.sends(names["good"], value=5)
    assert names["good"].value == 5
