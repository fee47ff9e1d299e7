"""Parts of figures that follow each other do so again, and what cells have connected to figures is named."""

from __future__ import annotations

import pytest

from saved_state_processes import carried_on
from saved_state_roundtrip import cells, of_user, roundtrip

pytest.importorskip("matplotlib")

HEAD = """
import numpy
from matplotlib.figure import Figure
data = numpy.arange(9.0).reshape(3, 3)
fig = Figure()
ax = fig.subplots()
"""
FOLLOWING = {
    "a colorbar its image": (
        "im = ax.imshow(data); bar = fig.colorbar(im)",
        "im.set_clim(0, 5); im.set_cmap('gray'); shown = bar.vmax, bar.cmap.name",
    ),
    "a colorbar its contours": (
        "lines = ax.contourf(data); bar = fig.colorbar(lines)",
        "lines.set_cmap('gray'); lines.set_clim(0, 3); shown = bar.vmax, bar.cmap.name",
    ),
    "a colorbar's extensions its axes": (
        "im = ax.imshow(data); bar = fig.colorbar(im, extend='max')",
        (
            "before = [p.get_path().vertices.tolist() for p in bar._extend_patches]; bar.ax.invert_yaxis()\n"
            "shown = before, [p.get_path().vertices.tolist() for p in bar._extend_patches]"
        ),
    ),
    "an image what tells its colors": (
        "im = ax.imshow(data)",
        (
            "im.stale = False; im.norm.vmin = 3; shown = [im.stale]\n"
            "im.stale = False; im.set_cmap('gray'); shown += [im.stale]"
        ),
    ),
    "several images one norm": (
        (
            "from matplotlib.colors import Normalize\nnorm = Normalize(0, 1)\n"
            "one, other = ax.imshow(data, norm=norm), ax.scatter([1], [1], c=[1], norm=norm)"
        ),
        "one.stale = other.stale = False; norm.vmax = 7; shown = one.stale, other.stale, one.norm is norm",
    ),
    "the margins of a picture that": (
        "bins = ax.hexbin([1, 2, 3], [1, 2, 3], marginals=True)",
        "bins.set_cmap('gray'); shown = bins.hbar.get_cmap().name, bins.vbar.get_cmap().name",
    ),
    "an image in a box": (
        (
            "from matplotlib.offsetbox import AnnotationBbox, OffsetImage\n"
            "box = OffsetImage(data); ax.add_artist(AnnotationBbox(box, (0, 0)))"
        ),
        "box.image.stale = False; box.image.set_clim(0, 3); shown = box.image.stale",
    ),
    "a colorbar colors of no picture": (
        (
            "from matplotlib.cm import ScalarMappable\nfrom matplotlib.colors import Normalize\n"
            "colors = ScalarMappable(Normalize(0, 1), 'viridis'); bar = fig.colorbar(colors, ax=ax)"
        ),
        "colors.set_cmap('gray'); colors.norm.vmax = 7; shown = bar.cmap.name, bar.vmax, bar.ax.get_ylim()",
    ),
    "a figure its parts, as what is to be drawn again": (
        (
            "line, = ax.plot([1, 2], label='a'); text, legend = ax.set_title('t'), ax.legend()\n"
            "below = fig.subfigures().subplots(); deep, = below.plot([1])"
        ),
        (
            "shown = []\n"
            "for do in (lambda: line.set_color('r'), lambda: text.set_text('u'), lambda: legend.set_title('v'),\n"
            "           lambda: ax.set_xlim(0, 5), lambda: ax.spines.left.set_color('r'),\n"
            "           lambda: deep.set_color('r')):\n"
            "    for part in fig.findobj(): part._stale = False\n"
            "    do(); shown.append(fig.stale)\n"
            "assert all(shown)"
        ),
    ),
    "axes those beside them": (
        "second = ax.twinx(); third = fig.add_axes((0, 0, 1, 1), sharex=ax); top = ax.secondary_xaxis('top')",
        "ax.set_xlim(2, 5); shown = second.get_xlim(), third.get_xlim()",
    ),
}


@pytest.mark.parametrize(("source", "then"), FOLLOWING.values(), ids=FOLLOWING)
def test_it_follows(source, then):
    expected = cells(f"{HEAD}{source}\n{then}")["shown"]
    space = cells(HEAD + source)
    for _ in range(2):
        result = of_user(space)
        assert not (*result.manifest.missing, *result.manifest.changed, *result.report.missing)
        space = result.namespace
    exec(then, space)
    assert space["shown"] == expected


def test_it_does_so_from_whichever_part_it_was_saved() -> None:
    source = f"{HEAD}im = ax.imshow(data); bar = fig.colorbar(im)\n"
    for name in ("im", "bar", "ax", "fig"):
        space = cells(f"{source}it = {name}\ndel " + ", ".join({"im", "bar", "ax", "fig"}))
        it = of_user(space)["it"]
        image = it.mappable if name == "bar" else it if name == "im" else (it if name == "ax" else it.axes[0]).images[0]
        image.set_clim(0, 5)
        assert image.colorbar.vmax == 5


def test_it_is_connected_once_and_can_be_taken_off_again() -> None:
    space = of_user(of_user(cells(f"{HEAD}im = ax.imshow(data); bar = fig.colorbar(im)")).namespace).namespace
    im, bar = space["im"], space["bar"]
    assert [len(by_number) for by_number in im.callbacks.callbacks.values()] == [1]
    bar.remove()
    assert not im.callbacks.callbacks
    im.set_clim(0, 5)


def test_a_norm_alone_does_not_bring_pictures_that_are_gone() -> None:
    source = (
        "from matplotlib.colors import Normalize\nfrom matplotlib.figure import Figure\nnorm = Normalize(0, 1)\n"
        "fig = Figure(); fig.subplots().imshow([[1]], norm=norm); del fig"
    )
    assert not of_user(cells(source))["norm"].callbacks.callbacks.get("changed")


@pytest.mark.long("figures over three processes")
def test_pyplot_s_figures_follow_in_the_next_process_but_one():
    before = (
        "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt\n"
        "im = plt.imshow([[1, 2], [3, 4]]); bar = plt.colorbar()"
    )
    after = (
        "im.set_clim(0, 5); plt.gcf().canvas.draw()\n"
        "assert bar.vmax == 5 and len(im.callbacks.callbacks['changed']) == 1"
    )
    assert carried_on(before, after) == []


OF_CELLS = """
import functools
from matplotlib.figure import Figure
def tell(*_): pass
class Tells:
    def __call__(self, *_): pass
log, tells = [], Tells()
plain = Figure(); plain.subplots(1, 2)
def made(connect):
    fig = Figure(); connect(fig); return fig
a_list_s = made(lambda fig: fig.canvas.mpl_connect("button_press_event", log.append))
partly = made(lambda fig: fig.canvas.mpl_connect("button_press_event", functools.partial(tell, 1)))
by_object = made(lambda fig: fig.canvas.mpl_connect("button_press_event", tells))
of_artist = made(lambda fig: fig.subplots().add_callback(tell))
of_axes = made(lambda fig: fig.add_axobserver(tell))
"""


def test_whatever_a_cell_has_connected_to_figures_and_artists_is_named():
    changed = {(changed.name, changed.change) for changed in roundtrip(OF_CELLS).manifest.changed}
    names = ("a_list_s", "partly", "by_object", "of_artist", "of_axes")
    assert changed == {(name, "matplotlib leaves out what a cell has connected to it") for name in names}
