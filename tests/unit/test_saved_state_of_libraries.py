"""What libraries have been told, and what they hold of the user's, is there in the next process."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sysconfig
from pathlib import Path
from unittest import mock

import pytest

from left_out import thinned
from nls_jupyter.gpu_process import open_files
from saved_state_processes import carried, carried_on

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
    "arviz": (
        "import warnings; warnings.simplefilter('ignore')\nimport arviz; arviz.rcParams['stats.ic_pointwise'] = False",
        "assert arviz.rcParams['stats.ic_pointwise'] is False",
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
    "mlflow": (
        (
            "import warnings; warnings.simplefilter('ignore')\n"
            "import mlflow, tempfile; where = 'sqlite:///' + tempfile.mkdtemp() + '/mlflow.db'\n"
            "mlflow.set_tracking_uri(where); mlflow.set_experiment('mine'); run = mlflow.start_run().info.run_id\n"
            "mlflow.autolog(silent=True, log_models=False)"
        ),
        (
            "assert (mlflow.get_tracking_uri(), mlflow.active_run().info.run_id) == (where, run)\n"
            "mlflow.end_run()\nwith mlflow.start_run() as other: pass\n"
            "assert mlflow.get_experiment(other.info.experiment_id).name == 'mine'\n"
            "from mlflow.utils.autologging_utils import AUTOLOGGING_INTEGRATIONS as on\n"
            "assert on['mlflow']['silent'] and not on['mlflow']['log_models']"
        ),
    ),
    "gin": (
        (
            "import gin\ngin.enter_interactive_mode()\n"
            "@gin.configurable\ndef step(size=1, momentum=2):\n    return size, momentum\n"
            "@gin.configurable(module='own')\nclass Net:\n"
            "    def __init__(self, width=1, how=None):\n        self.width, self.how = width, how\n"
            "gin.constant('THREE', 3)\n"
            "gin.parse_config('step.size = %THREE\\nslow/step.momentum = 9\\nNet.how = @slow/step\\nNet.width = 7')\n"
            "assert step() == (3, 2)"
        ),
        (
            "assert step() == (3, 2), step()\nassert str(gin.query_parameter('step.size')) == '%THREE'\n"
            "with gin.config_scope('slow'): assert step() == (3, 9)\n"
            "net = Net(); assert net.width == 7 and net.how() == (3, 9)\n"
            "gin.parse_config('step.momentum = 5'); assert step() == (3, 5) and 'Net.width = 7' in gin.config_str()\n"
            "@gin.configurable\ndef step(size=4, momentum=0): return size\n"
            "assert step() == 3"
        ),
    ),
    "networkx": (
        "import networkx as nx; nx.config.warnings_to_ignore = {'cache'}; nx.config['cache_converted_graphs'] = False",
        "assert nx.config.warnings_to_ignore == {'cache'} and not nx.config.cache_converted_graphs, nx.config",
    ),
    "numba": (
        "import os; os.environ['NUMBA_NUM_THREADS'] = '2'\nimport numba; numba.set_num_threads(1)",
        "assert numba.get_num_threads() == 1",
    ),
    "pint": (
        (
            "import pint\nown, chosen = pint.UnitRegistry(), pint.UnitRegistry()\n"
            "chosen.define('smoot = 1.7 * meter')\n"
            "pint.set_application_registry(chosen); bridge = [364.4 * chosen.smoot, 1 * own.meter, own.Unit('km')]\n"
            "Quantity = own.Quantity; plain = pint.get_application_registry()"
        ),
        (
            "assert (bridge[0] + 1 * chosen.meter).to('smoot').m > 364.9 and plain('2 smoot').to('meter').m == 3.4\n"
            "assert bridge[1] + 1 * own.meter == 2 * own.meter and isinstance(bridge[1], Quantity)\n"
            "assert (1 * bridge[2]).to(own.meter).magnitude == 1000"
        ),
    ),
    "pyro": (
        (
            "import pyro, torch\nfrom torch.distributions import constraints\n"
            "weights = pyro.param('weights', torch.tensor([1.0, 2.0]))\n"
            "pyro.param('scale', torch.tensor(2.0), constraint=constraints.positive)"
        ),
        (
            "scale = pyro.param('scale'); assert scale.item() == 2 and scale.unconstrained() is not scale\n"
            "assert pyro.param('weights') is weights and weights.unconstrained() is weights"
        ),
    ),
    "structlog": (
        (
            "import io, structlog; shown = io.StringIO()\n"
            "def marked(logger, name, event): return {**event, 'mark': 1}\n"
            "structlog.configure(processors=[marked, structlog.processors.JSONRenderer(sort_keys=True)],\n"
            "                    logger_factory=structlog.PrintLoggerFactory(shown))"
        ),
        ('structlog.get_logger().info(\'a\')\nassert shown.getvalue() == \'{"event": "a", "mark": 1}\\n\''),
    ),
    "tensorboard": (
        (
            "import tempfile\nfrom torch.utils.tensorboard import SummaryWriter\n"
            "folder = tempfile.mkdtemp(); writer = SummaryWriter(folder, max_queue=3); writer.add_scalar('a', 1, 0)\n"
            "writer.flush()"
        ),
        (
            "writer.add_scalar('a', 2, 1); writer.close()\n"
            "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
            "read = EventAccumulator(folder); read.Reload(); assert [e.value for e in read.Scalars('a')] == [1, 2]"
        ),
    ),
    "transformers": (
        "import transformers; transformers.utils.logging.disable_progress_bar()",
        "assert not transformers.utils.logging.is_progress_bar_enabled()",
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
            "torch.multiprocessing.set_sharing_strategy('file_system')\nclass Mine: pass\n"
            "torch.serialization.add_safe_globals([Mine])\n"
            "torch.distributions.Distribution.set_default_validate_args(False)"
        ),
        (
            "assert (str(torch.tensor([1.23456])), torch.get_num_threads()) == ('tensor([1.23])', 1)\n"
            "assert (torch.tensor(1e-310, dtype=torch.float64) * 1).item() == 0.0\n"
            "assert torch.is_warn_always_enabled() and torch.hub.get_dir() == '/tmp/mine'\n"
            "assert torch.get_deterministic_debug_mode() == 1 and not torch.backends.mkldnn.enabled\n"
            "assert not torch.utils.deterministic.fill_uninitialized_memory\n"
            "assert torch.multiprocessing.get_sharing_strategy() == 'file_system'\n"
            "assert Mine in torch.serialization.get_safe_globals()\n"
            "assert not torch.distributions.Distribution._validate_args"
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
    "wandb": (
        (
            "import os, tempfile, warnings; warnings.simplefilter('ignore')\n"
            "os.environ |= {'WANDB_MODE': 'offline', 'WANDB_DIR': tempfile.mkdtemp(), 'WANDB_SILENT': 'true'}\n"
            "import wandb; run = wandb.init(project='mine'); wandb.log({'a': 1}); run.config.size = 3; number = run.id"
        ),
        "assert wandb.run is run and (run.id, run.config.size) == (number, 3); wandb.log({'a': 2}); run.finish()",
    ),
    "xarray": (
        "import xarray; xarray.set_options(display_style='text')",
        "assert xarray.get_options()['display_style'] == 'text'",
    ),
    "boto3": (
        "import boto3; boto3.setup_default_session(region_name='eu-west-1')",
        "assert boto3.DEFAULT_SESSION.region_name == 'eu-west-1'",
    ),
    "codecs": (
        (
            "import codecs, shutil\n"
            "mine = codecs.CodecInfo(lambda text, _=None: (text[::-1].encode(), len(text)), None)\n"
            "def find(name): return mine if name == 'mine' else None\n"
            "codecs.register(find); codecs.register_error('marked', lambda error: (mark, error.end)); mark = '?'\n"
            "codecs.register(gone := lambda name: 1 / 0 if name == 'gone' else None); codecs.unregister(gone)\n"
            "shutil.register_archive_format('mine', lambda *_, **__: 'made', description='')"
        ),
        (
            "mark = '!'; assert 'ab'.encode('mine') == b'ba' and 'a\\xff'.encode('ascii', 'marked') == b'a!'\n"
            "assert 'mine' in dict(shutil.get_archive_formats())\n"
            "try: codecs.lookup('gone')\nexcept LookupError: pass"
        ),
    ),
    "joblib": (
        (
            "import joblib\nclass Mine(joblib.parallel.ThreadingBackend): pass\n"
            "joblib.register_parallel_backend('mine', Mine); joblib.parallel_config('threading', n_jobs=2)\n"
            "with joblib.parallel_config(n_jobs=3): pass\nwith joblib.parallel_backend('loky', n_jobs=4): pass"
        ),
        (
            "usual = joblib.Parallel(); assert usual.n_jobs == 2 and 'Threading' in type(usual._backend).__name__\n"
            "with joblib.parallel_config('mine'): assert type(joblib.Parallel()._backend) is Mine"
        ),
    ),
    "astropy": (
        (
            "import warnings; warnings.simplefilter('ignore')\nimport astropy.units as u\n"
            "smoot = u.def_unit('smoot', 1.7 * u.m); u.add_enabled_units([smoot])\n"
            "u.set_enabled_equivalencies(u.spectral())\n"
            "with u.add_enabled_units([u.def_unit('gone', 3 * u.m)]): pass"
        ),
        (
            "assert u.Unit('smoot') == smoot and (1 * u.um).to(u.Hz).value > 1e14\n"
            "try: u.Unit('gone')\nexcept ValueError: pass\nelse: raise AssertionError"
        ),
    ),
    "holoviews": (
        (
            "import warnings; warnings.simplefilter('ignore')\nimport holoviews as hv\n"
            "hv.extension('matplotlib'); hv.opts.defaults(hv.opts.Curve(color='red'))"
        ),
        (
            "curve = hv.Curve([1, 2]); assert len(get_ipython().display_formatter.format(curve)[0]) > 1\n"
            "assert hv.Store.lookup_options('matplotlib', curve, 'style').kwargs['color'] == 'red'"
        ),
    ),
    "itables": (
        (
            "import itables, pandas as pd; itables.init_notebook_mode(connected=True, all_interactive=True)\n"
            "itables.options.maxBytes = 5"
        ),
        "assert 'itables' in pd.DataFrame({'a': [1]})._repr_html_() and itables.options.maxBytes == 5",
    ),
    "lets_plot": (
        "from lets_plot import LetsPlot; LetsPlot.setup_html()",
        "import lets_plot.frontend_context._configuration as shown; assert shown._frontend_contexts",
    ),
    "pyvista": (
        "import pyvista as pv; pv.global_theme.font.size = 33; pv.global_theme.background = 'red'",
        "assert pv.global_theme.font.size == 33 and pv.global_theme.background == pv.Color('red')",
    ),
    "unittest.loader": (
        (
            "import reprlib, unittest.loader; unittest.loader.defaultTestLoader.testMethodPrefix = 'mine'\n"
            "class Own: pass\nunittest.loader.own = Own(); unittest.loader.own.kept = 1; reprlib.aRepr.maxlist = 3\n"
            "unittest.loader.defaultTestLoader.suiteClass = None"
        ),
        (
            "assert unittest.loader.defaultTestLoader.testMethodPrefix == 'mine' and reprlib.aRepr.maxlist == 3\n"
            "assert type(unittest.loader.own) is Own and unittest.loader.own.kept == 1\n"
            "assert unittest.loader.defaultTestLoader.suiteClass is None"
        ),
    ),
    "opentelemetry.sdk": (
        (
            "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider\n"
            "provider = TracerProvider(); trace.set_tracer_provider(provider)"
        ),
        "assert trace.get_tracer_provider() is provider",
    ),
    "numpy": (
        "import numpy; numpy.polynomial.set_default_printstyle('ascii')",
        "assert '**' in str(numpy.polynomial.Polynomial([1, 2, 3]))",
    ),
    "PIL": (
        "from PIL import Image; Image.register_extension('MINE', '.mine'); Image.register_mime('MINE', 'image/mine')",
        "assert Image.registered_extensions()['.mine'] == 'MINE' and Image.MIME['MINE'] == 'image/mine'",
    ),
    "threadpoolctl": (
        "import numpy, threadpoolctl as t; t.threadpool_limits(1)\nwith t.threadpool_limits(2): pass",
        "assert {each['num_threads'] for each in t.threadpool_info()} == {1}",
    ),
    "webbrowser": (
        (
            "import copyreg, doctest, email.charset, faulthandler, os, signal, sys, webbrowser\n"
            "heard = []\ndef hear(event, _):\n    if event == 'mine': heard.append(event)\n"
            "def first(generator): pass\n"
            "sys.addaudithook(hear); sys.set_asyncgen_hooks(firstiter=first)\n"
            "sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL); os.putenv('MINE', '1')\n"
            "copyreg.add_extension('json.decoder', 'JSONDecoder', 0x1234); flag = doctest.register_optionflag('MINE')\n"
            "email.charset.add_charset('utf-8', email.charset.QP); faulthandler.register(signal.SIGUSR1)\n"
            "webbrowser.register('mine', None, webbrowser.GenericBrowser('true'))"
        ),
        (
            "import subprocess; sys.audit('mine')\n"
            "assert heard == ['mine'] and sys.get_asyncgen_hooks().firstiter is first\n"
            "assert sys.getdlopenflags() == os.RTLD_NOW | os.RTLD_GLOBAL\n"
            "assert subprocess.check_output('echo $MINE', shell=True) == b'1\\n'\n"
            "assert copyreg._inverted_registry[0x1234] and doctest.OPTIONFLAGS_BY_NAME['MINE'] == flag\n"
            "assert email.charset.CHARSETS['utf-8'][0] == email.charset.QP\n"
            "assert faulthandler.unregister(signal.SIGUSR1) and webbrowser.get('mine').name == 'true'"
        ),
    ),
    "omegaconf": (
        (
            "import warnings; warnings.simplefilter('ignore')\nfrom omegaconf import OmegaConf as made\n"
            "made.register_new_resolver('plus', lambda a, b: a + b); asked = made.create({'a': '${plus:1,2}'})\n"
            "made.register_new_resolver('gone', int); made.clear_resolver('gone')"
        ),
        "assert asked.a == 3 and not made.has_resolver('gone')",
    ),
    "requests_cache": (
        (
            "import requests, requests_cache as kept; kept.install_cache('mine', 'memory', expire_after=60)\n"
            "kept.uninstall_cache(); kept.install_cache('mine', 'memory', expire_after=70)"
        ),
        "assert requests.Session().settings.expire_after == 70",
    ),
    "rich": (
        (
            "import rich.pretty, rich.traceback\n"
            "rich.reconfigure(width=33); rich.pretty.install(); rich.traceback.install()"
        ),
        (
            "import rich; shown = get_ipython().display_formatter.formatters['text/plain']\n"
            "assert 'rich' in type(shown).__qualname__.lower() and rich.get_console().width == 33\n"
            "assert get_ipython().showtraceback.__module__ == 'rich.traceback'"
        ),
    ),
    "scipy": (
        "import scipy.special; scipy.special.seterr(all='raise')",
        "assert scipy.special.geterr()['domain'] == 'raise'",
    ),
}


def is_there(library):
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:  # nor is the package around it
        return False


@pytest.mark.parametrize("library", thinned(CASES, 4, "settings of libraries"))
def test_its_settings_are_in_force_in_the_next_process_but_one(library):
    if not is_there(library):
        pytest.skip(f"pip install {library} to check its settings with it")
    assert carried_on(*CASES[library]) == []


OFTEN_IMPORTED = ("pandas", "matplotlib", "altair", "jax", "plotly", "polars", "sklearn", "xarray")


@pytest.mark.parametrize("library", thinned(OFTEN_IMPORTED, 4, "settings of libraries"))
def test_without_a_change_a_restore_does_not_import_it(library):
    if not is_there(library):
        pytest.skip(f"pip install {library} to check its settings with it")
    assert carried_on(f"import {library}; del {library}", f"import sys; assert {library!r} not in sys.modules") == []


def test_tables_that_only_a_process_has_are_named():
    """DuckDB keeps what has no connection of its own in a database of the process."""
    pytest.importorskip("duckdb", reason="pip install duckdb to check what it keeps")
    before = "import duckdb; _ = duckdb.execute('create table measured as select 1 as a'); del _"
    assert carried(before, "1") == [["DuckDB's default database", "measured ends with its process; make it again"]]


@pytest.mark.skipif(
    shutil.which("cc") is None or not Path(sysconfig.get_path("include"), "Python.h").exists(),
    reason="there is no C compiler for Cython, or Python is without its headers",
)
def test_what_cython_has_compiled_in_a_cell_comes_back(tmp_path):
    pytest.importorskip("Cython", reason="pip install cython to check its cells")
    code = "def double(int x): return 2 * x\\ncdef class Held:\\n    cdef public int v\\n"
    before = (
        f"%load_ext Cython\n#%%\nget_ipython().run_cell_magic('cython', '', '{code}')\n#%%\n"
        "held = Held(); held.v = double(4); made = [Held, double]"
    )
    after = "assert made == [Held, double] and type(held) is Held and double(held.v) == 16"
    cache = {"IPYTHONDIR": str(tmp_path), "CFLAGS": "-O0"}
    assert carried(before, after, **cache) == []


def test_what_tensorboard_was_given_is_in_its_file_when_its_process_goes(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install tensorboard to check its writers")
    kind = importlib.import_module("torch.utils.tensorboard").SummaryWriter
    writer = kind(tmp_path, flush_secs=600)
    try:
        writer.add_scalar("loss", 1.0)
        # Its thread may have written this one by itself: the first that it is given, it does not keep.
        with mock.patch.object(kind, "flush", autospec=True, side_effect=kind.flush) as flush:
            open_files.flush()
        flush.assert_any_call(writer)
        (file,) = tmp_path.iterdir()
        assert b"loss" in file.read_bytes()
    finally:
        writer.close()
