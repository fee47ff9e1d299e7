"""What cells have made of the session beside names: magics, printers, hooks, `%config`, settings of the process."""

from __future__ import annotations

import re
import subprocess
from urllib.request import HTTPSHandler

import pytest

from left_out import thinned
from nls_jupyter.saved_state.patches import _all_targets
from saved_state_processes import carried, carried_on

MAGICS = (
    "from IPython.core.magic import Magics, line_magic, magics_class, register_line_magic\n"
    "seen = []\n"
    "@register_line_magic\n"
    "def mine(line):\n"
    "    seen.append(line)\n"
    "    return 'mine ' + line\n"
    "@magics_class\n"
    "class Many(Magics):\n"
    "    @line_magic\n"
    "    def one(self, line): return self.shell is get_ipython(), line\n"
    "get_ipython().register_magics(Many)\n#%%\n"
    "%alias hey echo hey %l\n%alias_magic tt timeit\n"
)
PRINTERS = (
    "class Shown: pass\n"
    "formatters = get_ipython().display_formatter.formatters\n"
    "html = formatters['text/html']\n"
    "html.for_type(Shown, lambda shown: '<b>shown</b>')\n"
    "html.for_type_by_name('fractions', 'Fraction', lambda fraction: '<i>fraction</i>')\n"
    "shown = Shown()\n"
)
HOOKS = (
    "import gc\n"
    "ip = get_ipython()\n"
    "counted = []\n"
    "class Watcher:\n"
    "    def after(self, result): counted.append(self)\n"
    "watcher = Watcher()\n"
    "ip.events.register('post_run_cell', watcher.after)\n"
    "ip.events.register('pre_execute', gc.collect)\n"
    "def answer(lines): return [line.replace('the_answer', '42') for line in lines]\n"
    "ip.input_transformers_post.append(answer)\n"
    "class Mine(Exception): pass\n"
    "ip.set_custom_exc((Mine,), lambda shell, kind, error, trace, tb_offset=None: counted.append(error))\n"
)
PYLAB = (
    "from IPython.core.pylabtools import import_pylab as _import_pylab\n"
    "rows, _imported = [1], {}\n"
    "_import_pylab(_imported)\n"
    "get_ipython().push({**_imported, 'pushed': rows}, interactive=False)\n"
    "del _imported\n"
)
FINDER = (
    "import sys, importlib.abc, importlib.machinery\n"
    "class Loader(importlib.abc.Loader):\n"
    "    def create_module(self, spec): return None\n"
    "    def exec_module(self, module): module.v = 3\n"
    "class Finder(importlib.abc.MetaPathFinder):\n"
    "    def find_spec(self, name, path, target=None):\n"
    "        if name == 'virtual': return importlib.machinery.ModuleSpec(name, Loader())\n"
    "sys.meta_path.insert(0, Finder())\n"
)
PROCESS = (
    "import builtins, contextlib, csv, gc, locale, logging, os, signal, socket, sys, threading, time\n"
    "logging.basicConfig(level=logging.INFO, format='<%(message)s>', stream=sys.stderr)\n"
    "logging.getLogger('mine').setLevel(logging.ERROR); logging.disable(logging.DEBUG)\n"
    "sys.argv = ['train.py', '--epochs', '3']\n"
    "gc.disable(); gc.set_threshold(701, 11, 12); os.umask(0o027); sys.setswitchinterval(0.25)\n"
    "csv.field_size_limit(1 << 20); socket.setdefaulttimeout(7.0); sys.set_int_max_str_digits(5000)\n"
    "got = []\n"
    "signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))\n"
    "signal.signal(signal.SIGUSR2, signal.SIG_IGN)\n"
    "builtins.zork = got; threading.excepthook = lambda arguments: got.append('thread')\n"
    "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset(); locale.setlocale(locale.LC_NUMERIC, 'C.UTF-8')\n"
)


LOGS = (
    "import io, logging, warnings\n"
    "shown = io.StringIO(); logger = logging.getLogger('mine')\n"
    "def no_secrets(record): return 'secret' not in record.getMessage()\n"
    "logger.addFilter(no_secrets); logging.addLevelName(15, 'FINE'); logging.captureWarnings(True)\n"
    "plain = logging.getLogRecordFactory()\n"
    "def tagged(*arguments, **options):\n"
    "    record = plain(*arguments, **options); record.tag = 'tag'; return record\n"
    "logging.setLogRecordFactory(tagged)\n"
    "class Chatty(logging.Logger):\n"
    "    def chat(self): return 'chat'\n"
    "logging.setLoggerClass(Chatty)\n"
)
LATEX = "a.b = 1\n" + "% comment\n" * 501
AT_EXIT = (
    "import atexit, sys\n"
    "told = []\n"
    "def tell(what, more=''): told.append(what + more)\n"
    "atexit.register(tell, 'twice', more='!')\n"
    "@atexit.register\n"
    "def gone(): told.append('gone')\n"
    "for _ in range(2): atexit.unregister(gone)\n"
    "from tqdm import tqdm\nfor _ in tqdm([1], disable=False, file=open('/dev/null', 'w')): pass\ndel _\n"
    "get_ipython().run_cell_magic('bash', '', ':')\n"
)


@pytest.mark.parametrize(
    ("before", "after"),
    thinned(
        [
            (
                MAGICS,
                (
                    "result = get_ipython().run_line_magic('mine', 'x'); assert (result, seen) == ('mine x', ['x'])\n"
                    "assert get_ipython().run_line_magic('one', '2') == (True, '2')\n"
                    "assert ('hey', 'echo hey %l') in get_ipython().alias_manager.aliases\n"
                    "assert get_ipython().find_line_magic('tt').magic_name == 'timeit'"
                ),
            ),
            (
                PRINTERS,
                (
                    "from fractions import Fraction\n"
                    "assert html is get_ipython().display_formatter.formatters['text/html']\n"
                    "assert (html(shown), html(Fraction(1, 2))) == ('<b>shown</b>', '<i>fraction</i>')"
                ),
            ),
            (
                HOOKS,
                (
                    "assert ip is get_ipython() and counted == [watcher] * 2\n#%%\n"
                    "assert counted == [watcher] * 3 and the_answer == 42\n"
                    "assert ip.events.callbacks['pre_execute'].count(gc.collect) == 1\n"
                    "assert ip.custom_exceptions == (Mine,)\n"
                    "ip.CustomTB(Mine, Mine('x'), None); assert isinstance(counted[-1], Mine)"
                ),
            ),
            (
                (
                    "%precision 3\n%xmode Plain\n%config InteractiveShell.ast_node_interactivity = 'all'\n"
                    "%config Completer.use_jedi = False\n%automagic off\n%pdb on\n%load_ext autoreload\n#%%\n"
                    "%autoreload 2\n%aimport -json"
                ),
                (
                    "ip = get_ipython()\n"
                    "assert ip.display_formatter.formatters['text/plain'].float_precision == '3'\n"
                    "assert ip.InteractiveTB.mode == 'Plain' and ip.ast_node_interactivity == 'all' and ip.call_pdb\n"
                    "assert not ip.Completer.use_jedi and not ip.automagic\n"
                    "reloader = ip.magics_manager.registry['AutoreloadMagics']._reloader\n"
                    "assert [type(hook.__self__).__name__ for hook in ip.events.callbacks['pre_run_cell']].count(\n"
                    "    'AutoreloadMagics') == 1\n"
                    "assert reloader.enabled and reloader.check_all and reloader.skip_modules == {'json': True}"
                ),
            ),
            (
                AT_EXIT,
                (
                    "atexit.unregister(get_ipython().atexit_operations)\n"
                    "atexit._run_exitfuncs(); assert told == ['twice!']"
                ),
            ),
            (
                LOGS,
                (
                    "assert logger.filters == [no_secrets] and logging.getLevelName(15) == 'FINE'\n"
                    "assert logging.getLevelName(30) == 'WARNING' and logging._warnings_showwarning is not None\n"
                    "assert logging.getLogRecordFactory() is tagged and logging.getLoggerClass() is Chatty\n"
                    "record = logger.makeRecord('mine', 30, '', 0, 'x', (), None); assert record.tag == 'tag'\n"
                    "assert logging.getLogger('new').chat() == 'chat' and not logger.filter(\n"
                    "    logger.makeRecord('mine', 30, '', 0, 'a secret', (), None))"
                ),
            ),
            (
                "import numpy as np\n%precision 3\nnp.set_printoptions(precision=2)",
                "import numpy as np; assert str(np.array([1.23456])) == '[1.23]'",
            ),
            (FINDER, "import virtual; assert virtual.v == 3; assert sys.meta_path[0].__class__ is Finder"),
            (
                PROCESS,
                (
                    "form = '<%(message)s>'; handler, = logging.root.handlers\n"
                    "assert (logging.root.level, handler.stream, handler.formatter._fmt) == (20, sys.stderr, form)\n"
                    "assert sys.argv == ['train.py', '--epochs', '3']\n"
                    "assert logging.getLogger('mine').level == 40 and logging.root.manager.disable == 10\n"
                    "assert not gc.isenabled() and gc.get_threshold() == (701, 11, 12) and os.umask(0) == 0o027\n"
                    "assert sys.getswitchinterval() == 0.25 and csv.field_size_limit() == 1 << 20\n"
                    "assert socket.getdefaulttimeout() == 7.0 and sys.get_int_max_str_digits() == 5000\n"
                    "signal.raise_signal(signal.SIGUSR1); assert got == [signal.SIGUSR1] and zork is got\n"
                    "assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN\n"
                    "threading.excepthook(None); assert got[-1] == 'thread'\n"
                    "assert time.tzname[0] == 'JST' and 'UTF-8' in locale.setlocale(locale.LC_NUMERIC)\n"
                ),
            ),
        ],
        2,
        "parts of a session",
    ),
    ids=["magics", "printers", "hooks", "config", "atexit", "logs", "NumPy", "import hooks", "process"],
)
def test_it_is_as_it_was_in_the_next_process_but_one(before, after):
    assert carried_on(before, after) == []


@pytest.mark.long("what is imported by processes of their own")
def test_what_pylab_imports_and_extensions_push_is_there_again_and_still_not_listed():
    after = (
        "assert plot.__module__ == 'matplotlib.pyplot' and np.linspace(0, 1, 3)[1] == 0.5 and figsize(3, 2) is None\n"
        "assert pushed is rows and rows == [1]\n"
        "assert get_ipython().run_line_magic('who_ls', '') == ['rows']\n"
    )
    assert carried_on(PYLAB, after) == []


@pytest.mark.long("what is imported by processes of their own")
def test_what_a_library_holds_once_is_the_librarys_under_a_name_of_the_users_too():
    before = (
        "import matplotlib, pandas\nfrom matplotlib import rcParams, colormaps\nfrom numpy import s_, r_\n"
        "from os import environ\noptions = pandas.options\n"
        "kept = {'in': rcParams, 'own': matplotlib.RcParams({'font.size': 3})}\n"
        "rcParams['lines.linewidth'] = 7; environ['MINE'] = '1'; options.display.width = 33\n"
    )
    after = (
        "import numpy, os\n"
        "assert rcParams is matplotlib.rcParams is kept['in'] and matplotlib.rcParams['lines.linewidth'] == 7\n"
        "assert colormaps is matplotlib.colormaps and s_ is numpy.s_ and r_ is numpy.r_\n"
        "assert environ is os.environ and os.environ['MINE'] == '1'\n"
        "options.display.width = 44; assert pandas.get_option('display.width') == 44\n"
        "assert type(kept['own']) is type(rcParams) and kept['own']['font.size'] == 3\n"
    )
    assert carried_on(before, after) == []


def test_what_is_seeded_or_set_through_a_name_of_the_users_is_so_for_everybody():
    before = (
        "import decimal, logging, numpy as np\n"
        "context, state = decimal.getcontext(), np.random.rand.__self__\ncontext.prec = 9\n"
        "mine = {'context': decimal.Context(prec=4), 'state': np.random.RandomState(1)}\n"
        "drawn = mine['state'].rand()\nmanager, last = logging.root.manager, logging.lastResort\n"
    )
    after = (
        "assert context is decimal.getcontext() is not mine['context'] and context.prec == 9\n"
        "context.prec = 3; assert str(decimal.Decimal(1) / 3) == '0.333' and mine['context'].prec == 4\n"
        "np.random.seed(3); first = state.rand(); np.random.seed(3); assert first == np.random.rand()\n"
        "state = np.random.RandomState(1); state.rand(); assert mine['state'].rand() == state.rand()\n"
        "assert manager is logging.Logger.manager and last is logging.lastResort\n"
    )
    assert carried_on(before, after) == []


def test_a_context_of_the_users_for_decimal_numbers_is_the_one_that_counts():
    before = "import decimal\ncontext = decimal.Context(prec=4, traps=[decimal.Inexact]); decimal.setcontext(context)\n"
    after = (
        "assert context is decimal.getcontext() and context.prec == 4\n"
        "assert [kind for kind, on in context.traps.items() if on] == [decimal.Inexact]\n"
    )
    assert carried_on(before, after) == []


def test_what_cells_set_on_modules_and_classes_of_libraries_is_set_again():
    before = (
        "import math, pandas as pd\nrows = [1]\n"
        "def shares(self): return self / self.sum()\n#%%\n"
        "pd.DataFrame.shares = shares\nmath.tau2 = 2 * math.tau\nsetattr(pd.Series, 'rows', rows)\n"
        "math.table = {'rows': rows}; del math.table\n"
    )
    after = (
        "rows[0] = 2\n"
        "assert pd.DataFrame({'a': [1, 3]}).shares()['a'].tolist() == [0.25, 0.75] and math.tau2 == 2 * math.tau\n"
        "assert pd.Series.rows is rows and not hasattr(math, 'table')\n"
        "assert pd.DataFrame.shares is shares\n"
    )
    assert carried_on(before, after) == []


def test_what_cells_put_into_lists_and_dicts_of_libraries_is_in_them_again():
    before = (
        "import keyword, mimetypes, html.entities as entities, networkx as nx, pandas as pd\n"
        "from keyword import kwlist\nknown = mimetypes.knownfiles\n"
        "mimetypes.knownfiles.append('/mine'); entities.name2codepoint['mine'] = 65; del entities.codepoint2name[38]\n"
        "nx.rows, nx.seen, nx.deep = [1], {1}, {'a': {'b': [1]}}\n#%%\n"
        "nx.rows.append(2); nx.seen.add(2); nx.deep['a']['b'].append(3)\n"
        "def more():\n    import keyword as words\n"
        "    words.softkwlist += ['mine']; words.kwlist.extend(['mine'])\nmore()\n"
    )
    after = (
        "assert mimetypes.knownfiles[-1] == '/mine' and mimetypes.knownfiles.count('/mine') == 1\n"
        "assert entities.name2codepoint['mine'] == 65 and 38 not in entities.codepoint2name\n"
        "assert keyword.softkwlist[-1] == keyword.kwlist[-1] == 'mine' and keyword.kwlist.count('mine') == 1\n"
        "assert (nx.rows, nx.seen, nx.deep) == ([1, 2], {1, 2}, {'a': {'b': [1, 3]}})\n"
    )
    assert carried_on(before, after) == []


def test_environments_and_templates_of_cells_are_found_by_their_names_again():
    before = (
        "import gymnasium as gym, plotly.io as pio\nfrom plotly.graph_objects import Figure, layout\n"
        "class Env(gym.Env):\n    observation_space = action_space = gym.spaces.Discrete(2)\n"
        "    def reset(self, **given): super().reset(**given); return 1, {}\n"
        "    def step(self, action): return 1, 1.0, False, False, {}\n"
        "gym.register('Mine-v0', entry_point=Env, max_episode_steps=3)\n"
        "gym.register('Named-v0', entry_point='__main__:Env'); env = gym.make('Mine-v0'); env.reset(seed=3)\n"
        "pio.templates['mine'] = layout.Template(layout={'title': {'text': 'mine'}})\n"
        "pio.templates.default = 'gridon+mine'\n"
    )
    after = (
        "env.step(0)\n"
        "assert type(gym.make('Mine-v0').unwrapped) is type(gym.make('Named-v0').unwrapped) is Env\n"
        "assert pio.templates.default == 'gridon+mine' and Figure().layout.template.layout.title.text == 'mine'\n"
    )
    assert carried_on(before, after) == []


def test_what_a_cell_has_put_in_the_place_of_a_builtin_goes_on_calling_pythons_own():
    before = (
        "import builtins, functools\nplain, said = print, []\n"
        "def says(*words, **options): said.append(words); plain(*words, **options)\n"
        "builtins.print, builtins.sorted = says, functools.partial(sorted, reverse=True)\n"
    )
    after = (
        "assert builtins.print is says and print is says and type(plain) is type(len)\nprint('again')\n"
        "assert said[-1] == ('again',) and sorted([1, 2]) == [2, 1]\n"
    )
    assert carried_on(before, after) == []


def test_formatters_of_cells_show_what_cells_give():
    before = (
        "from IPython.core.formatters import BaseFormatter, PlainTextFormatter\n"
        "from traitlets import ObjectName, Unicode\n"
        "display = get_ipython().display_formatter\n"
        "class Own(BaseFormatter):\n"
        "    format_type, print_method = Unicode('application/x-own'), ObjectName('_repr_own_')\n"
        "class Short(PlainTextFormatter):\n"
        "    def __call__(self, shown): return super().__call__(shown)[:2]\n"
        "own = display.formatters['application/x-own'] = Own(parent=display)\n"
        "display.formatters['text/plain'] = Short(parent=display)\n"
        "own.for_type(complex, lambda number: 'a number')\n"
        "class Thing:\n    def _repr_own_(self): return 'mine'\n"
    )
    after = (
        "assert display is get_ipython().display_formatter and display.formatters['application/x-own'] is own\n"
        "assert own.parent is display and display.format(Thing())[0]['application/x-own'] == 'mine'\n"
        "assert display.format(1j)[0]['application/x-own'] == 'a number'\n"
        "assert display.format(12345)[0]['text/plain'] == '12'\n"
    )
    assert carried_on(before, after) == []


def test_functions_for_warnings_and_traces_and_collections_are_called_in_the_next():
    before = (
        "import functools, gc, logging, sys, threading, warnings\nlogging.captureWarnings(True)\n"
        "def shown(*given, **options): pass\n"
        "def trace(frame, event, argument): pass\n"
        "def collected(phase, information): pass\n"
        "warnings.showwarning = shown; warnings.formatwarning = lambda message, *more, **options: f'{message}!'\n"
        "threading.settrace(trace); threading.setprofile(trace); sys.setprofile(functools.partial(trace))\n"
        "sys.settrace(trace); gc.callbacks.append(collected)\n"
    )
    after = (
        "assert warnings.showwarning is shown and warnings.formatwarning('x', UserWarning, '', 0) == 'x!'\n"
        "assert threading.gettrace() is threading.getprofile() is sys.gettrace() is trace\n"
        "assert sys.getprofile().func is trace and gc.callbacks.count(collected) == 1\n"
    )
    assert carried_on(before, after) == []


def test_the_end_of_a_librarys_pool_of_workers_is_nothing_that_is_lost():
    before = (
        "import atexit\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "_ = atexit.register(ThreadPoolExecutor(1).shutdown); del _\n"
    )
    assert carried_on(before, "1") == []


def test_nor_is_that_of_a_librarys_object_with_threads_of_its_own():
    before = (
        "import atexit, logging.handlers, queue\n"
        "listener = logging.handlers.QueueListener(queue.SimpleQueue())\n"
        "listener.start(); _ = atexit.register(listener.stop); del _, listener\n"
    )
    assert carried_on(before, "1") == []


@pytest.mark.parametrize("given", ["copyreg.pickle(Point, way)", "copyreg.dispatch_table[Point] = way"])
def test_ways_of_pickling_that_cells_give_to_python_are_there(given):
    before = f"import copyreg\nclass Point: pass\ndef way(point): return Point, ()\n{given}\n"
    assert carried_on(before, "assert copyreg.dispatch_table[Point](Point()) == (Point, ())") == []


def test_what_a_library_in_c_has_among_the_builtins_is_its_own():
    before = "import builtins, datetime\nbuiltins.__internals_of_c__, builtins.mine = datetime.datetime_CAPI, [1]\n"
    assert carried_on(before, "assert mine == [1] and not hasattr(__builtins__, '__internals_of_c__')\n") == []


def test_fonts_that_cells_have_added_are_found_again(tmp_path):
    added = tmp_path / "mine.ttf"
    before = (
        "import shutil\nfrom matplotlib import font_manager as fonts, get_data_path\n"
        f"added = shutil.copy(get_data_path() + '/fonts/ttf/DejaVuSans.ttf', {str(added)!r})\n"
        "fonts.fontManager.addfont(added)\n"
    )
    after = "assert [font.name for font in fonts.fontManager.ttflist if font.fname == added] == ['DejaVu Sans']\n"
    assert carried_on(before, after) == []


def test_colors_are_what_their_names_have_been_given():
    """As by seaborn's `set_theme()`, which gives `b` to `k` the colors of its palette."""
    before = (
        "import matplotlib.pyplot\nfrom matplotlib.colors import colorConverter, to_hex, get_named_colors_mapping\n"
        "assert to_hex('k') == '#000000'\ncolorConverter.colors['k'] = (0.2, 0.2, 0.2)\n"
        "get_named_colors_mapping()['ours'] = '#123456'\n"
    )
    after = "assert (to_hex('k'), to_hex('ours'), to_hex('r')) == ('#333333', '#123456', '#ff0000')\n"
    assert carried_on(before, after) == []


def test_objects_that_a_cell_has_put_into_what_a_library_holds_are_named():
    before = "import token\nclass Mine: pass\ntoken.EXACT_TOKEN_TYPES['mine'] = Mine\n"
    (lost,) = carried(before, "assert 'mine' not in token.EXACT_TOKEN_TYPES")
    why = "RuntimeError: it holds more than plain values, and is as the library makes it: run its cell again"
    assert lost == ["content: token.EXACT_TOKEN_TYPES", why]


def test_what_a_magic_or_a_function_with_imports_of_its_own_sets_on_libraries_is_set_again():
    before = (
        "%%time\nimport pandas as pd\npd.DataFrame.owner = 'me'\n%precision 3\n#%%\n"
        "%%capture\nimport math\nmath.tau2 = 6.5\n#%%\n"
        "def setup():\n    import pandas as frames\n    from collections import OrderedDict as Ordered\n"
        "    frames.Series.unit = 'm'; Ordered\nsetup()\n"
    )
    after = "import math\nassert (pd.DataFrame.owner, math.tau2, pd.Series.unit) == ('me', 6.5, 'm')\n"
    assert carried_on(before, after) == []


@pytest.mark.parametrize(
    "cell",
    [
        f"get_ipython().run_cell_magic('latex', '', {LATEX!r})",
        f"{'1 + ' * 20_000}1  # del",
        f"{'-' * 100_000}1  # del",
        "get_ipython().run_cell_magic('mine', '', 'a.b = \"\\ud800\"')",
    ],
    ids=["comments of another language", "too long a sum", "too many signs", "half a character"],
)
def test_a_cell_that_cannot_be_read_sets_nothing_and_costs_no_save(cell):
    assert _all_targets(cell) == ((), ())


def test_what_runs_awaits_is_the_new_shells_own_unless_cells_chose_another():
    before = "async def seven(): return 7\n#%%\nassert await seven() == 7\n"
    own = "from IPython.core.interactiveshell import _asyncio_runner as own\nassert get_ipython().loop_runner is own\n"
    assert carried_on(before, own + "#%%\nassert await seven() == 7\n") == []
    chosen = "assert get_ipython().loop_runner.__name__ == '_pseudo_sync_runner'\n"
    assert carried_on(before + "#%%\n%autoawait sync\n", chosen) == []


def test_threads_of_the_users_that_nobody_holds_by_a_name_are_named():
    before = (
        "import concurrent.futures, functools, threading, time\n"
        "class Ticker(threading.Thread):\n"
        "    def run(self): time.sleep(600)\n"
        "    def tick(self): time.sleep(600)\n"
        "def work(seconds): time.sleep(seconds)\n"
        "def start(*others, **options):\n"
        "    threading.Thread(*others, daemon=True, **options).start()\n"
        "start(target=work, args=(600,), name='of a function'); start(target=functools.partial(work, 600), name='b')\n"
        "Ticker(name='of a class', daemon=True).start()\n"
        "start(target=Ticker().tick, name='of a method')\n"
        "timer = threading.Timer(600, work, (1,)); timer.daemon = True; timer.start()\n"
        "concurrent.futures.ThreadPoolExecutor(1).submit(int);\n"
    )
    lost = dict(carried(before, "1"))
    assert lost == {
        "timer": "a thread cannot be saved",
        "running threads": "b, of a class, of a function, of a method end with their process; start them again",
    }


def test_threads_that_cells_have_started_on_a_librarys_function_are_named():
    before = (
        "import concurrent.futures, multiprocessing, socketserver, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True, name='asleep').start()\n"
        "#%%\n"
        "def serve():\n"
        "    server = socketserver.TCPServer(('127.0.0.1', 0), socketserver.BaseRequestHandler)\n"
        "    threading.Thread(target=server.serve_forever, daemon=True, name='a server').start()\n"
        "serve()\n"
        "#%%\n"
        "space = {}\n"
        "exec('def start(thread): thread.start()', space)\n"
        "space['start'](threading.Thread(target=threading.Event().wait, daemon=True, name='waits'))\n"
        "#%%\n"
        "pool = concurrent.futures.ThreadPoolExecutor(1); pool.submit(time.sleep, 0); del pool\n"
        "queue = multiprocessing.Queue(); queue.put(1); del queue\n"
    )
    expected = "a server, asleep, waits end with their process; start them again"
    assert carried(before, "1") == [["running threads", expected]]


def test_programs_that_cells_have_started_without_a_name_are_named():
    before = (
        "import os, subprocess, multiprocessing, time\n"
        "ends = os.pipe()\n"  # until this process has ended
        "def start(*command): return subprocess.Popen(command, stdin=ends[0])\n"
        "held = start('cat', '/dev/stdin')\n"
        "def begin():\n"
        "    start('/bin/cat', '-')\n"
        "    start('true').wait()\n"
        "    multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,), daemon=True).start()\n"
        "    multiprocessing.Queue()\n"
        "begin()\n"
    )
    lost = dict(carried(before, "1"))
    expected = r"cat \(process \d+\) ends with its process; start it again"
    assert re.fullmatch(expected, lost.pop("running programs"))
    assert lost == {"held": "a process cannot be saved"}


def test_threads_that_libraries_have_started_are_not_named():
    before = (
        "import threading, time\n"
        "from tqdm import tqdm\n"
        "for _ in tqdm([1]): pass\n"
        "#%%\n"
        "from IPython.lib.backgroundjobs import BackgroundJobManager\n"
        "from IPython.core.history import HistorySavingThread\n"
        "assert any(type(thread).__name__ == 'TMonitor' for thread in threading.enumerate())\n"
    )
    assert carried(before, "1") == []


def test_tasks_that_cells_have_started_are_named_wherever_their_code_is():
    before = (
        "import asyncio, types\n"
        "loop = asyncio.new_event_loop()\n"
        "get_ipython().kernel = types.SimpleNamespace(io_loop=types.SimpleNamespace(asyncio_loop=loop))\n"
        "async def own(): await asyncio.sleep(600)\n"
        "space = {'asyncio': asyncio}\n"
        "exec('async def made(): await asyncio.sleep(600)', space)\n"
        "async def start():\n"
        "    running = asyncio.create_task(own()), asyncio.create_task(space['made']())\n"
        "    running += asyncio.create_task(asyncio.sleep(600)), asyncio.ensure_future(asyncio.Event().wait())\n"
        "    for number, task in enumerate(running): task.set_name(f'{number}')\n"
        "    await asyncio.to_thread(int)\n"
        "    loop.keeps = running\n"
        "loop.run_until_complete(start())\n"
        "del loop\n"
    )
    expected = "0 (own), 1 (made), 2 (sleep), 3 (Event.wait) end with their process; start them again"
    assert carried(before, "1") == [["running tasks", expected]]


def test_a_function_in_the_place_of_a_librarys_own_is_named():
    before = "import math\nplain = math.sqrt\nmath.sqrt = lambda x: plain(x) + 1\n"
    (lost,) = [missing for missing in carried(before, "assert math.sqrt(4) == 2") if missing[0].startswith("attribute")]
    assert lost == ["attribute: math.sqrt", "RuntimeError: it takes the place of the library's own: run its cell again"]


def test_what_a_cell_imports_from_the_future_holds_for_later_cells():
    before = "from __future__ import annotations\n"
    after = (
        "class Node:\n"
        "    def link(self, other: Node | None = None) -> Tree: ...\n"
        "assert Node.link.__annotations__ == {'other': 'Node | None', 'return': 'Tree'}\n"
    )
    assert carried_on(before, after) == []


def test_cells_and_results_are_there_under_the_names_and_in_the_order_that_ipython_gave_them():
    before = "first = [1]; first\n#%%\n%precision 3\n#%%\nsecond = [2]; second\n#%%\n[first]\n#%%\n'last'\n"
    after = (
        "assert list(Out) == [1, 2, 3, 4, 5, 6] and Out[4][0] is first is _1, list(Out)\n"
        "assert (_i1, _i2, _i6) == ('first = [1]; first', '%precision 3', '1')\n"
        "assert (_i, _ii, _iii) == ('1', \"'last'\", '[first]')\n"
        "assert In[2] == \"get_ipython().run_line_magic('precision', '3')\"\n"
        "assert not {'_i', '_i2'} & {*get_ipython().run_line_magic('who_ls', '')}\n"
    )
    assert carried_on(before, after) == []


def test_hooks_and_completers_that_ipython_was_given_are_called_by_the_next():
    given = (
        "ip, opened = get_ipython(), []\n"
        "def edit(shell, filename, linenum=None, wait=True): opened.append((shell is ip, filename))\n"
        "ip.set_hook('editor', edit)\n"
        "ip.set_hook('complete_command', lambda shell, event: ['--epochs'], str_key='train')\n"
        "ip.set_hook('complete_command', edit, re_key='^ev')\n"
        "def words(completer, text): return [text + '_more']\n"
        "def things(context): return {'completions': []}\n"
        "ip.set_custom_completer(words); ip.Completer.custom_matchers.append(things)\n"
    )
    there = (
        "ip.hooks.editor('x.py'); assert opened == [(True, 'x.py')]\n"
        "known = ip.strdispatchers['complete_command']\n"
        "for_train, = known.flat_matches('train'); assert for_train(None) == ['--epochs']\n"
        "for_eval, = known.flat_matches('evaluate'); assert for_eval.__func__ is edit\n"
        "first, second = ip.Completer.custom_matchers; assert first('w') == ['w_more'] and second is things\n"
    )
    assert carried_on(given, there) == []


def test_what_cells_have_set_in_the_place_of_ipythons_own_methods_is_there_again():
    given = (
        "ip, shown = get_ipython(), []\n"
        "usual = ip.showtraceback\n"
        "def short(*arguments, **options): shown.append(usual)\n"
        "ip.showtraceback = short\n"
        "ip._showtraceback = (lambda shell, *arguments: shown.append(shell)).__get__(ip)\n"
    )
    there = (
        "assert ip.showtraceback is short and usual.__self__ is ip\n"
        "ip.showtraceback(); ip._showtraceback(); assert shown == [usual, ip]"
    )
    assert carried_on(given, there) == []


@pytest.mark.parametrize("name", thinned(["_", "__", "___"], 3, "names that IPython has too"))
def test_a_name_of_underscores_that_a_cell_has_bound_is_the_users(name):
    before = f"words = {{}}\ndef {name}(text): return words.get(text, text)\n#%%\n6 * 7\n#%%\nwords['x'] = 'y'\n"
    after = f"'a result'\n#%%\n'another'\n#%%\nwords['z'] = 'a'\nassert {name}('x') + {name}('z') == 'ya'\n"
    assert carried_on(before, after) == []
    again = f"del {name}\n#%%\n5\n#%%\n6\n#%%\n7\n#%%\nassert (_, __, ___) == (7, 6, 5)\n"
    assert carried_on(before, again) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "import os\nrows = []\n__file__ = os.path.abspath('mine.ipynb')\n",
            "assert __file__.endswith('mine.ipynb')\n",
        ),
        (
            "entry, exit = [1], [2]\n(quit, In), Out = (entry, entry), [entry]\n",
            "assert exit == [2] and Out[0] is In is quit is entry\n",
        ),
        ("_41, _42 = 1, [3]\nrest = _42\n", "assert _41 == 1 and _42 is rest\n"),
        ("!exit 3\n", "assert _exit_code == 3\n"),
        (
            "rows = [5]\nrows\n",
            "assert _1 is rows is Out[1]\nrows = 6\n#%%\nassert exit is quit is get_ipython().exiter\n",
        ),
        ("%reset -f\n", "assert In is get_ipython().history_manager.input_hist_parsed and Out is _oh\n"),
    ],
)
def test_what_cells_bind_to_names_that_ipython_has_is_the_users(before, after):
    assert carried_on(before, after) == []


@pytest.mark.parametrize("asks", ["%tb", "%debug"])
def test_who_asks_for_a_traceback_that_ended_with_its_process_is_told(asks):
    before = "ip = get_ipython()\nsetting = ip.run_cell('1 / 0')\ndel setting\n"
    after = (
        "import contextlib, io, sys\n"
        "with contextlib.redirect_stderr(io.StringIO()) as told:\n"
        f"    {asks}\n"
        "assert 'The traceback of the last error, ZeroDivisionError, ended with its process' in told.getvalue(), told\n"
        "#%%\nanother = ip.run_cell('{}[0]')\n#%%\n"
        "with contextlib.redirect_stderr(io.StringIO()) as told:\n    %tb\n"
        "assert 'ended with' not in told.getvalue() and sys.last_type is KeyError\n"
    )
    assert carried_on(before, after) == []


def test_nobody_is_told_of_a_traceback_that_there_never_was():
    after = (
        "import contextlib, io\nwith contextlib.redirect_stderr(io.StringIO()) as told:\n    %tb\n"
        "assert told.getvalue() == 'No traceback available to show.\\n'\n"
    )
    assert carried_on("1\n", after) == []


def test_xdel_can_be_the_first_cell_after_a_restore():
    assert carried_on("a = [1]; b = 2\n", "%xdel a\n#%%\nassert 'a' not in dir() and b == 2\n") == []


def test_a_text_that_a_cell_binds_to_doc_is_the_users():
    assert carried_on("__doc__ = 'mine'\n", "assert __doc__ == 'mine'\n") == []
    assert carried_on("1\n", "assert __doc__.startswith('Automatically')\n") == []


def test_a_function_for_numpys_errors_comes_back_with_what_it_shares():
    before = (
        "import numpy as np\nhits = []\n"
        "def note(kind, flag): hits.append(kind)\n"
        "np.seterrcall(note); np.seterr(divide='call'); np.setbufsize(16000);\n"
    )
    after = (
        "assert np.geterrcall() is note and np.geterr()['divide'] == 'call' and np.getbufsize() == 16000\n"
        "np.array([1.0]) / 0\nassert hits == ['divide by zero']\n"
    )
    assert carried_on(before, after) == []


def test_a_function_for_numpys_errors_that_cannot_be_kept_is_named():
    before = (
        "import numpy as np, threading\n"
        "class Log:\n"
        "    def __init__(self): self.lock = threading.Lock(); self.lock.acquire()\n"
        "    def write(self, text): pass\n"
        "np.seterrcall(Log()); np.seterr(divide='log');\n"
    )
    assert ["function of np.seterrcall", "it holds a lock that is taken"] in [
        [name.partition(":")[0], reason] for name, reason in carried(before, "1")
    ]


def test_an_ast_transformer_is_the_one_that_its_name_has():
    before = (
        "import ast\nclass Same(ast.NodeTransformer): pass\n"
        "same = Same(); get_ipython().ast_transformers.append(same)\n"
    )
    after = "assert get_ipython().ast_transformers == [same]\nget_ipython().ast_transformers.remove(same)\n"
    assert carried_on(before, after) == []


def test_attributes_that_cells_set_on_sys_and_os_come_back_and_the_processs_own_stay():
    before = (
        "import io, os, sys\nrows = [1]\n"
        "sys.run_id, sys.rows, os.run_id, sys.tracebacklimit = 5, rows, 6, 3\n"
        "sys.ps1 = sys.last_value = '?'; sys.my_stdout = sys.stdout\n"
        "shown, sys.stderr = sys.stderr, io.StringIO()\nsys.stderr = shown\n"
        "sys.platform, os.environ = 'mine', dict(os.environ); del sys.run_id; sys.run_id = 7\n"
    )
    after = (
        "assert (sys.run_id, os.run_id, sys.tracebacklimit) == (7, 6, 3) and sys.rows is rows\n"
        "assert sys.platform == 'linux' and type(os.environ) is not dict and getattr(sys, 'last_value', '') != '?'\n"
        "assert sys.my_stdout is sys.stdout and sys.stderr is shown\n"
    )
    assert carried_on(before, after) == []


def test_folders_that_cells_have_left_are_gone_back_to():
    before = (
        "import os, tempfile\nbegan = os.getcwd()\n%cd -q /usr\n%pushd /tmp\nbeen = [str(folder) for folder in _dh]"
    )
    after = (
        "assert [str(folder) for folder in _dh] == been and len(been) > 2, _dh\n%popd\n"
        "assert os.getcwd() == '/usr'\n#%%\n%cd -0\nassert os.getcwd() == began"
    )
    assert carried_on(before, after) == []


def test_what_modules_of_the_standard_library_were_told_holds_in_the_next():
    before = (
        "import calendar, faulthandler, reprlib, sys, xml.etree.ElementTree as ET, zoneinfo\n"
        "ET.register_namespace('mine', 'http://example.org/mine'); calendar.setfirstweekday(6)\n"
        "reprlib.aRepr.maxlist = 2; zoneinfo.reset_tzpath(['/usr/share/zoneinfo']); folders = zoneinfo.TZPATH\n"
        "sys.pycache_prefix = '/tmp/mine'; sys.set_coroutine_origin_tracking_depth(3)\n"
        "faults = not faulthandler.is_enabled()\n"
        "(faulthandler.enable if faults else faulthandler.disable)()\n"
    )
    after = (
        "assert ET.tostring(ET.Element('{http://example.org/mine}a')).startswith(b'<mine:a')\n"
        "assert calendar.firstweekday() == 6 and reprlib.repr([1, 2, 3]) == '[1, 2, ...]'\n"
        "assert zoneinfo.TZPATH == folders and faulthandler.is_enabled() == faults\n"
        "assert sys.pycache_prefix == '/tmp/mine' and sys.get_coroutine_origin_tracking_depth() == 3\n"
    )
    assert carried_on(before, after) == []


def test_an_opener_of_urls_that_a_cell_has_installed_opens_them_in_the_next():
    installs = "opener = urllib.request.build_opener(); opener.addheaders = [('User-agent', 'mine')]\n"
    before = f"import urllib.request\n{installs}urllib.request.install_opener(opener)"
    assert carried_on(before, "assert urllib.request._opener is opener and opener.addheaders[0][1] == 'mine'") == []


def test_an_opener_with_proxies_of_its_own_comes_back_and_the_usual_one_is_made_anew():
    code = "import urllib.request as u\nu.install_opener(u.build_opener(u.ProxyHandler({'http': 'mine:80'})))"
    proxies = "[h.proxies for h in u._opener.handlers if type(h) is u.ProxyHandler]"
    assert carried_on(code, f"assert {proxies} == [{{'http': 'mine:80'}}]") == []
    code = "import urllib.request as u\nu.urlopen('file:///etc/passwd').close()\nassert u._opener"
    assert carried_on(code, "assert u._opener is None") == []


@pytest.mark.skipif(not any(vars(HTTPSHandler()).values()), reason="handlers of HTTPS have no context of their own")
def test_a_handler_of_https_comes_back_where_all_of_its_context_can_be_read(tmp_path):
    """As with an authority of a company's own; one that does not check its servers is not made as if it did."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=own -keyout key"
    subprocess.run([*command.split(), "-out", "own.pem"], cwd=tmp_path, check=True, capture_output=True)
    before = (
        "import ssl, urllib.request as u\n"
        "usual, trusts_more, checks_less = u.HTTPSHandler(), u.HTTPSHandler(), u.HTTPSHandler(check_hostname=False)\n"
        f"trusts_more._context.load_verify_locations({str(tmp_path / 'own.pem')!r}); usual.note = [trusts_more]\n"
        "certificates = trusts_more._context.get_ca_certs()"
    )
    after = (
        "assert usual.note == [trusts_more] and trusts_more._context.get_ca_certs() == certificates\n"
        "assert usual._context.get_ca_certs() == u.HTTPSHandler()._context.get_ca_certs() != certificates\n"
        "assert trusts_more._context.check_hostname and trusts_more._context.verify_mode == ssl.CERT_REQUIRED"
    )
    assert [name for name, _ in carried_on(before, after)] == ["checks_less"]


def test_what_the_system_and_python_were_told_for_the_whole_process_holds_in_the_next():
    before = (
        "import csv, decimal, mimetypes, os, resource, sys, threading, tracemalloc\n"
        "csv.register_dialect('mine', 'excel', delimiter=';')\n"
        "usual, cpu = os.nice(0), min(os.sched_getaffinity(0))\n"
        "os.nice(1); os.sched_setaffinity(0, {cpu}); threading.stack_size(1 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (333, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "sys.dont_write_bytecode = writes_none = not sys.dont_write_bytecode\n"
        "decimal.DefaultContext.prec = 5; mimetypes.add_type('a/b', '.qqq'); tracemalloc.start(3)\n"
    )
    after = (
        "assert os.nice(0) == usual + 1 and os.sched_getaffinity(0) == {cpu} and threading.stack_size() == 1 << 20\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 333 and sys.dont_write_bytecode == writes_none\n"
        "assert decimal.DefaultContext.prec == 5 and decimal.getcontext().prec == 28\n"
        "assert mimetypes.guess_type('x.qqq') == ('a/b', None) and mimetypes.guess_type('x.html')[0] == 'text/html'\n"
        "assert tracemalloc.get_traceback_limit() == 3 and tracemalloc.is_tracing()\n"
        "assert list(csv.reader(['a;b'], 'mine')) == [['a', 'b']] and list(csv.reader(['a,b'])) == [['a', 'b']]\n"
    )
    assert carried_on(before, after) == []
