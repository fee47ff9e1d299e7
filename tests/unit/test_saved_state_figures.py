"""Figures that pyplot holds, with a name or without, and which of them and of their axes are the current ones."""

from __future__ import annotations

import contextlib

import pytest

from left_out import thinned
from nls_jupyter.saved_state import Saver
from saved_state_processes import carried, carried_on
from saved_state_roundtrip import Roundtrip, restore, roundtrip

pytest.importorskip("matplotlib")

BEGINNING = "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt\n"


@pytest.mark.parametrize(
    ("before", "after"),
    thinned(
        [
            (
                "b = plt.figure(1); a = plt.figure(2); plt.figure(1)",
                (
                    "assert (plt.gcf() is b, b.number, a.number, plt.get_fignums()) == (True, 1, 2, [1, 2])\n"
                    "plt.close(); assert plt.gcf() is a"
                ),
            ),
            (
                "fig, ax = plt.subplots(1, 2); f2 = plt.figure('named'); plt.sca(ax[0])",
                (
                    "line, = plt.plot([1, 2]); assert line.axes is ax[0] and plt.figure('named') is f2\n"
                    "plt.sca(ax[1]); assert plt.gca() is ax[1]"
                ),
            ),
            (
                "plt.figure(7); plt.plot([1, 2]); plt.figure(3); plt.title('mine'); plt.figure(7)",
                (
                    "assert plt.get_fignums() == [3, 7] and plt.gcf().number == 7 and len(plt.gca().lines) == 1\n"
                    "assert plt.figure(3).axes[0].get_title() == 'mine'"
                ),
            ),
            ("fig = plt.figure(); plt.close('all')", "assert plt.get_fignums() == []"),
        ],
        4,
        "figures: matplotlib is imported by each process",
    ),
    ids=["two figures", "axes", "without names", "closed"],
)
def test_pyplot_goes_on_with_the_same_current_figure_and_axes(before, after):
    assert carried_on(BEGINNING + before, after) == []


def test_axes_that_are_new_after_a_restore_are_the_current_ones():
    from matplotlib.figure import Figure

    figure = Figure()
    first, second = figure.subplots(1, 2)
    figure.sca(first)
    result = Roundtrip({"figure": figure, "second": second})
    assert result["figure"].gca() is result["figure"].axes[0]
    result["figure"].sca(result["second"])
    assert result["figure"].gca() is result["second"]
    again = Roundtrip({"figure": figure})["figure"]
    assert again.add_subplot(3, 1, 3) is again.gca()


REGISTERED = """
import matplotlib, sys, types
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
class Mine(ListedColormap):
    pass
matplotlib.colormaps.register(ListedColormap(["red", "blue"], name="two"))
matplotlib.colormaps.register(Mine(["red", "green"]), name="mine")
ramp = {"red": lambda x: x, "green": lambda x: x, "blue": lambda x: x}
matplotlib.colormaps.register(LinearSegmentedColormap("by function", ramp))
matplotlib.colormaps.register(ListedColormap(["red"], name="gone"))
matplotlib.colormaps.unregister("gone")
matplotlib.color_sequences.register("three", ["r", "g", "b"])
"""


def test_colormaps_and_sequences_that_cells_register_are_known_in_the_next_process_but_one():
    after = """
from matplotlib import color_sequences, colormaps
assert colormaps["two"](0) == (1, 0, 0, 1) and type(colormaps["mine"]) is Mine and colormaps["mine"].name == "mine"
assert colormaps["by function"](255)[:3] == (1, 1, 1) and color_sequences["three"] == ["r", "g", "b"]
assert not {"gone"} & {*colormaps}
colormaps.unregister("mine"); color_sequences.unregister("three")
"""
    assert carried_on(REGISTERED, after) == []


def test_a_colormap_that_a_library_registers_comes_with_its_import(tmp_path):
    (tmp_path / "registers_a_map.py").write_text(
        "import matplotlib.colors\n"
        "matplotlib.colormaps.register(matplotlib.colors.ListedColormap(['red'], name='of a library'))\n"
    )
    path = f"import sys; sys.path.append({str(tmp_path)!r})\n"
    after = "import registers_a_map; assert 'of a library' in matplotlib.colormaps"
    assert carried(path + "import matplotlib, registers_a_map; del registers_a_map", after) == []


CALLED_BACK = """
from matplotlib.figure import Figure
plain, clicked, zoomed = Figure(), Figure(), Figure()
plain.subplots(1, 2, sharex=True)
def tell(*_): pass
clicked.canvas.mpl_connect("button_press_event", tell)
zoomed.subplots().callbacks.connect("xlim_changed", tell)
"""


def test_callbacks_that_matplotlib_leaves_out_are_named():
    changed = {(changed.name, changed.change) for changed in roundtrip(CALLED_BACK).manifest.changed}
    assert changed == {
        (name, "matplotlib leaves out what a cell has connected to it") for name in ("clicked", "zoomed")
    }


def test_figures_are_pickled_as_before_and_give_the_numbers_that_they_would_have_given():
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots(2, 2)[0, 0].plot([1, 2])
    names = {"figure": figure, "ticks": figure.axes[0].xaxis.get_major_ticks()}
    again = {}
    with contextlib.closing(Saver()) as saver:
        for _ in range(3):
            saver.save(names, cell=None)
        assert saver._committed.blobs.written_bytes == 0
        restore(saver.descriptors(), again)
    connected = [found["figure"].canvas.mpl_connect("close_event", print) for found in (names, again)]
    new = Figure()
    new.subplots(2, 2)[0, 0].plot([1, 2])
    assert connected == [new.canvas.mpl_connect("close_event", print)] * 2


def test_transformations_go_on_sharing_what_they_consist_of_and_what_depends_on_them():
    from matplotlib.transforms import Affine2D, Bbox, TransformedBbox

    box, moved = Bbox.from_bounds(0, 0, 1, 1), Affine2D()
    shown, attributes = TransformedBbox(box, moved), vars(moved)
    result = Roundtrip(
        {"box": box, "moved": moved, "shown": shown, "points": box.get_points(), "attributes": attributes}
    )
    assert shown.x0 == result["shown"].x0 == 0
    result["moved"].translate(2, 0)
    assert result["shown"].x0 == 2
    result["box"].x0 = 1
    assert result["shown"].x0 == 3
    result["points"][0, 0] = 5
    assert result["box"].x0 == 5
    assert vars(result["moved"]) is result["attributes"]


def test_what_depends_on_a_transformation_comes_back_with_it():
    from matplotlib.transforms import Affine2D

    first = Affine2D()
    result = Roundtrip({"first": first, "both": first + Affine2D().scale(2)})
    assert result["both"].transform((1, 1)).tolist() == [2, 2]
    result["first"].translate(1, 0)
    assert result["both"].transform((1, 1)).tolist() == [4, 2]
