"""Settings of libraries that notebooks show things with are in force in the next process."""

from __future__ import annotations

import importlib.util

import pytest

from left_out import thinned
from saved_state_processes import carried_on

CASES = {
    "altair": (
        (
            "import altair as alt; alt.data_transformers.disable_max_rows(); alt.theme.enable('dark')\n"
            "alt.theme.register('mine', enable=False)(lambda: {'config': {'background': color}})\n"
            "color = 'red'; alt.renderers.register('shown', lambda spec, **given: given)\n"
            "alt.renderers.enable('shown', size=3)"
        ),
        (
            "assert alt.data_transformers.options == {'max_rows': None} and alt.theme.active == 'dark'\n"
            "assert alt.renderers.active == 'shown' and alt.renderers.get()({}) == {'size': 3}\n"
            "color = 'blue'; alt.theme.enable('mine')\n"
            "assert alt.theme.get()() == {'config': {'background': 'blue'}}"
        ),
    ),
    "bokeh": (
        "import bokeh.io; bokeh.io.output_notebook(hide_banner=True)",
        "assert bokeh.io.state.curstate().notebook_type == 'jupyter' and bokeh.io.state.curstate().notebook",
    ),
    "dask": (
        "import dask; dask.config.set(scheduler='sync'); dask.config.set({'array.chunk-size': '1MiB'})",
        "assert dask.config.get('scheduler') == 'sync' and dask.config.get('array.chunk-size') == '1MiB'",
    ),
    "jax": (
        "import jax; jax.config.update('jax_enable_x64', True)",
        "assert jax.numpy.arange(3.0).dtype == 'float64'",
    ),
    "nest_asyncio": (
        "import asyncio, nest_asyncio; nest_asyncio.apply()",
        "assert asyncio.run.__module__ == 'nest_asyncio'",
    ),
    "nest_asyncio2": (
        "import asyncio, nest_asyncio2; nest_asyncio2.apply()",
        "assert asyncio.run.__module__ == 'nest_asyncio2'",
    ),
    "plotly.io": ("import plotly.io; plotly.io.templates.default = None", "assert plotly.io.templates.default is None"),
    "plotly": (
        "import plotly.io; plotly.io.renderers.default = 'json'; plotly.io.templates.default = 'ggplot2+gridon'",
        "assert (plotly.io.renderers.default, plotly.io.templates.default) == ('json', 'ggplot2+gridon')",
    ),
    "polars": (
        "import polars; polars.Config.set_tbl_rows(3); polars.Config.set_thousands_separator(True)",
        "assert '1,234' in str(polars.DataFrame({'a': [1234] * 9})) and '…' in str(polars.DataFrame({'a': [1] * 9}))",
    ),
    "sklearn": (
        "import sklearn; sklearn.set_config(transform_output='pandas')",
        "assert sklearn.get_config()['transform_output'] == 'pandas'",
    ),
    "sympy": (
        (
            "import sympy; sympy.assumptions.global_assumptions.add(sympy.Q.positive(sympy.Symbol('known')))\n"
            "sympy.init_printing(order='grevlex', use_latex='matplotlib'); x = sympy.symbols('x')\n"
            "shown, _ = get_ipython().display_formatter.format(x**2)"
        ),
        (
            "again, _ = get_ipython().display_formatter.format(x**2)\n"
            "assert 'image/png' in again and again.keys() == shown.keys(), (again, shown)\n"
            "assert sympy.printing.printer.Printer._global_settings['order'] == 'grevlex'\n"
            "assert sympy.ask(sympy.Q.positive(sympy.Symbol('known')))"
        ),
    ),
    "torch": (
        (
            "import torch; torch.set_printoptions(precision=2); torch.set_num_threads(1)\n"
            "torch.set_flush_denormal(True); torch.set_warn_always(True); torch.hub.set_dir('/tmp/mine')\n"
            "torch.use_deterministic_algorithms(True, warn_only=True); torch.backends.mkldnn.enabled = False\n"
            "torch.utils.deterministic.fill_uninitialized_memory = False\n"
            "torch.multiprocessing.set_sharing_strategy('file_system')"
        ),
        (
            "assert (str(torch.tensor([1.23456])), torch.get_num_threads()) == ('tensor([1.23])', 1)\n"
            "assert (torch.tensor(1e-310, dtype=torch.float64) * 1).item() == 0.0\n"
            "assert torch.is_warn_always_enabled() and torch.hub.get_dir() == '/tmp/mine'\n"
            "assert torch.get_deterministic_debug_mode() == 1 and not torch.backends.mkldnn.enabled\n"
            "assert not torch.utils.deterministic.fill_uninitialized_memory\n"
            "assert torch.multiprocessing.get_sharing_strategy() == 'file_system'"
        ),
    ),
    "mpmath": (
        "import mpmath; mpmath.mp.dps = 40; mpmath.mp.pretty = True",
        "assert mpmath.mp.dps == 40 and str(mpmath.mpf(1) / 3).count('3') == 40 and mpmath.mp.pretty",
    ),
    "tqdm": (
        "import pandas as pd; from tqdm import tqdm; tqdm.pandas(desc='mine', disable=True)",
        "assert pd.Series([1, 2]).progress_apply(lambda x: x + 1).sum() == 5",
    ),
    "xarray": (
        "import xarray; xarray.set_options(display_style='text')",
        "assert xarray.get_options()['display_style'] == 'text'",
    ),
    "scipy": (
        "import scipy.special; scipy.special.seterr(all='raise')",
        "assert scipy.special.geterr()['domain'] == 'raise'",
    ),
}


@pytest.mark.parametrize("library", thinned(CASES, 4, "settings of libraries"))
def test_its_settings_are_in_force_in_the_next_process_but_one(library):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"pip install {library} to check its settings with it")
    assert carried_on(*CASES[library]) == []


OFTEN_IMPORTED = ("pandas", "matplotlib", "altair", "jax", "plotly", "polars", "sklearn", "xarray")


@pytest.mark.parametrize("library", thinned(OFTEN_IMPORTED, 4, "settings of libraries"))
def test_without_a_change_a_restore_does_not_import_it(library):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"pip install {library} to check its settings with it")
    assert carried_on(f"import {library}; del {library}", f"import sys; assert {library!r} not in sys.modules") == []
