"""Figures of plotly in a new process: with what they hold, and one with the parts of them that have names."""

from __future__ import annotations

import pytest

from saved_state_processes import carried, carried_on

pytest.importorskip("plotly", reason="pip install plotly to check its figures")


def test_a_figure_holds_arrays_of_numpy():
    before = "import numpy as np, plotly.graph_objects as go\nfig = go.Figure(go.Scatter(y=np.arange(3.0)))\n"
    assert carried_on(before, "assert fig.data[0].y.max() == 2.0\n") == []


def test_what_a_name_has_of_a_figure_is_in_it():
    before = (
        "import plotly.graph_objects as go\n"
        "fig = go.Figure(go.Bar(y=[1]), layout={'template': 'plotly_dark', 'xaxis2': {'title': 'second'}})\n"
        "added = fig.add_hline(y=1)\n#%%\n"
        "trace, layout, shape, marker = fig.data[0], fig.layout, fig.layout.shapes[0], fig.data[0].marker\n"
    )
    after = (
        "trace.y, layout.title, shape.line.color, marker.color = [5], 'told', 'red', 'blue'\n"
        "assert added is fig and fig.data[0] is trace and fig.data[0].y == (5,)\n"
        "assert layout.xaxis2.title.text == 'second'\n"
        "sent = fig.to_dict()\n"
        "assert sent['data'][0]['marker']['color'] == 'blue' and sent['layout']['title']['text'] == 'told'\n"
        "assert sent['layout']['shapes'][0]['line']['color'] == 'red'\n"
    )
    assert carried_on(before, after) == []


def test_whoever_is_to_hear_of_a_change_hears_of_it():
    before = (
        "import plotly.graph_objects as go\n"
        "fig, heard = go.Figure(go.Scatter(y=[1])), []\n"
        "fig.layout.on_change(lambda layout, title: heard.append(title.text), 'title')\n"
        "fig.data[0].on_change(lambda trace, y: heard.append(y), 'y')\n"
    )
    after = "fig.layout.title, fig.data[0].y = 'new', [2]\nassert heard == ['new', (2,)], heard\n"
    assert carried_on(before, after) == []


def test_a_class_of_figures_with_a_way_of_its_own_keeps_it():
    before = (
        "import plotly.graph_objects as go\n"
        "class Mine(go.Figure):\n"
        "    def __reduce__(self): return Mine, (go.Bar(y=[7]),)\n"
        "fig = Mine()\n"
    )
    assert carried(before, "assert fig.data[0].y == (7,)\n") == []
