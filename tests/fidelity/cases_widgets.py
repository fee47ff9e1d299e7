"""Comms and ipywidgets: what a cell opens, and what the browser answers."""

from __future__ import annotations

from cases import Cell, FromFrontend, case

BAR = ((r"\[?\d\d:\d\d(<|&lt;)[^\]\"]*\]?", "[TIME]"),)
SLIDER = "import ipywidgets as widgets\nslider = widgets.IntSlider(value=3)\nslider"
CLICK = {"method": "custom", "content": {"event": "click"}}


def moved(value: int) -> dict[str, object]:
    return {"method": "update", "state": {"value": value}, "buffer_paths": []}


SETUP = "import ipywidgets as widgets\nfrom comm import create_comm"

CASES = (
    case(
        "a comm",
        "from comm import create_comm\ncomm = create_comm(target_name='mine', data={'a': 1}, metadata={'m': 2})",
    ),
    case(
        "a message on a comm",
        "comm = create_comm(target_name='mine')",
        "comm.send({'b': 2}, buffers=[b'bytes'])",
        "comm.close({'bye': 3})",
    ),
    case("a slider", SLIDER),
    case("a slider that the cell moves", SLIDER, "slider.value = 7"),
    case("a box of widgets", "widgets.VBox([widgets.Button(description='go'), widgets.Text('t')])"),
    case(
        "a linked pair",
        "a, b = widgets.IntText(1), widgets.IntText(2)\nlink = widgets.link((a, 'value'), (b, 'value'))",
        "a.value = 9\nb.value",
    ),
    case(
        "an output widget",
        "out = widgets.Output()\nout",
        "with out:\n    print('inside')\n    display('shown inside')\nprint('outside')",
    ),
    case(
        "an output widget that takes an error",
        "out = widgets.Output()\nout",
        "with out:\n    raise ValueError('inside')\nprint('outside')",
        "with out:\n    raise ValueError('at the end')",
        "with out:\n    1 / 0\nraise KeyError('of the cell')",
    ),
    case(
        "an output widget that takes a result",
        "out = widgets.Output()\nout",
        "import sys\nwith out:\n    sys.displayhook(5)",
    ),
    case(
        "an interaction that fails",
        "@widgets.interact(x=(0, 10))\ndef fail(x=2):\n    raise ValueError(x)",
        FromFrontend(2, moved(4)),
    ),
    case(
        "an output widget that is cleared",
        "out = widgets.Output()\nout",
        "out.clear_output()\nout.append_stdout('appended')",
    ),
    case("a widget that is closed", SLIDER, "slider.close()"),
    case(
        "a progress bar of widgets",
        "from tqdm.notebook import tqdm\nfor i in tqdm(range(2), mininterval=0): pass",
        hide=BAR,
    ),
    case("a slider that the user moves", SLIDER, FromFrontend(2, moved(8)), "slider.value"),
    case(
        "a slider with an observer",
        "import ipywidgets as widgets\nslider = widgets.IntSlider()\n"
        "slider.observe(lambda change: print('moved to', change['new']), 'value')\nslider",
        FromFrontend(2, moved(5), late="moved to 5"),
        "slider.value",
    ),
    case(
        "a button",
        "button = widgets.Button(description='go')\nbutton.on_click(lambda b: print('clicked', b.description))\nbutton",
        FromFrontend(2, CLICK, late="clicked go"),
    ),
    case(
        "a button whose callback fails",
        "def fail(b): raise ValueError('on click')\nbutton = widgets.Button()\nbutton.on_click(fail)\nbutton",
        FromFrontend(2, CLICK, late="ValueError"),
    ),
    case(
        "an interaction",
        "@widgets.interact(x=(0, 10))\ndef square(x=2):\n    return x * x",
        FromFrontend(2, moved(4)),
    ),
    case(
        "a comm that the browser closes",
        "closed = []\ncomm = create_comm(target_name='mine')\ncomm.on_close(lambda m: closed.append(1))",
        FromFrontend(0, closes=True),
        "closed",
    ),
    case(
        "a comm that answers the browser",
        "comm = create_comm(target_name='mine')\ncomm.on_msg(lambda m: comm.send({'got': m['content']['data']}))",
        FromFrontend(0, {"n": 1}),
    ),
    case("a chain of widgets and results", Cell("display(widgets.Label('l'))\nprint('x')\nwidgets.HTML('<b>')")),
)
