"""Widgets of matplotlib: they hear what happens in their figure, and call what cells have given them."""

from __future__ import annotations

import pytest

from saved_state_roundtrip import cells, of_user

pytest.importorskip("matplotlib")

HEAD = """
from matplotlib.backend_bases import MouseEvent
from matplotlib.figure import Figure
from matplotlib.widgets import *
fig = Figure()
ax, log = fig.subplots(), []
def tell(*got): log.append(got)
"""
PRESS = """
def press(kind, x, y):
    event = MouseEvent(kind, fig.canvas, *ax.transAxes.transform((x, y)), 1)
    fig.canvas.callbacks.process(kind, event)
"""
CALLING = {
    "a slider": ("it = Slider(ax, 's', 0, 1); it.on_changed(log.append)", "it.set_val(0.25)"),
    "a slider with two ends": ("it = RangeSlider(ax, 's', 0, 1); it.on_changed(tell)", "it.set_val((0.25, 0.5))"),
    "a slider with several": (
        "it = Slider(ax, 's', 0, 1); first = it.on_changed(log.append); it.on_changed(tell); it.on_changed(print)",
        "it.disconnect(first); it.set_val(0.25)",
    ),
    "check buttons": ("it = CheckButtons(ax, ['a', 'b']); it.on_clicked(tell)", "it.set_active(1)"),
    "radio buttons": ("it = RadioButtons(ax, ['a', 'b']); it.on_clicked(tell)", "it.set_active(1)"),
    "a text box": (
        "it = TextBox(ax, 't'); it.on_submit(tell); it.on_text_change(log.append)",
        "it.set_val('new')",
    ),
    "a method of an object": (
        (
            "class Holder:\n"
            "    def hear(self, value): log.append((self, value))\n"
            "    def __repr__(self): return 'holder'\n"
            "holder = Holder(); it = RadioButtons(ax, ['a', 'b']); it.on_clicked(holder.hear)"
        ),
        "it.set_active(1); assert log[0][0] is holder",
    ),
    "a button that is clicked": (
        "it = Button(ax, 'go'); it.on_clicked(lambda event: log.append(event.name))",
        "press('button_press_event', .5, .5); press('button_release_event', .5, .5)",
    ),
    "a slider that is dragged": (
        "it = Slider(ax, 's', 0, 1, valstep=0.25); it.on_changed(tell)",
        "press('button_press_event', .5, .5); press('motion_notify_event', .75, .5)",
    ),
    "a span that is selected": (
        "it = SpanSelector(ax, lambda low, high: log.append((round(low, 3), round(high, 3))), 'horizontal')",
        (
            "press('button_press_event', .25, .5); press('motion_notify_event', .5, .5)\n"
            "press('button_release_event', .5, .5)"
        ),
    ),
    "a slider that its figure holds": (
        "fig.slider = Slider(ax, 's', 0, 1); fig.slider.on_changed(tell)",
        "press('button_press_event', .25, .5)",
    ),
}


@pytest.mark.parametrize(("source", "then"), CALLING.values(), ids=CALLING)
def test_it_calls_what_it_was_given(source, then):
    expected = repr(cells(f"{HEAD}{source}\n{PRESS}{then}")["log"])
    assert expected != "[]"
    space = cells(HEAD + source)
    for _ in range(2):
        result = of_user(space)
        assert not (*result.manifest.missing, *result.manifest.changed, *result.report.missing)
        space = result.namespace
    exec(PRESS + then, space)
    assert repr(space["log"]) == expected


def test_one_that_is_taken_off_hears_no_more() -> None:
    space = of_user(cells(HEAD + "it = Slider(ax, 's', 0, 1); it.on_changed(tell)")).namespace
    space["it"].disconnect_events()
    exec(PRESS + "press('button_press_event', .5, .5)", space)
    assert space["log"] == []


def test_one_that_calls_what_cannot_be_saved_is_named_and_its_figure_is_not() -> None:
    source = "numbers = (n for n in [1])\nit = Slider(ax, 's', 0, 1); it.on_changed(lambda _, held=numbers: next(held))"
    result = of_user(cells(HEAD + source))
    assert set(result.unsaved) == {"numbers", "it"}
    assert result.unsaved["it"] == "it holds a generator"
    assert result["fig"].axes == [result["ax"]]
