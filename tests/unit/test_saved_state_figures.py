"""Figures that pyplot holds, with a name or without, and which of them and of their axes are the current ones."""

from __future__ import annotations

import pytest

from saved_state_processes import carried_on
from saved_state_roundtrip import Roundtrip

pytest.importorskip("matplotlib")

BEGINNING = "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt\n"


@pytest.mark.parametrize(
    ("before", "after"),
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
