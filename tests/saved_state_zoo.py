"""Kinds of objects that notebooks hold, made by a line each: those that come back, and those that are named."""

from __future__ import annotations

# ruff: noqa: E501 - a table reads best with one kind in one line
from typing import Any

#: group -> what to run first, and per kind an expression. What comes back is compared by `same`.
KEPT: dict[str, tuple[str, dict[str, str]]] = {
    "Python's own types": (
        (
            "import array, collections, datetime, decimal, fractions, functools, itertools, operator, pathlib, re, uuid\n"
            "import threading, types, string, ipaddress, random, io, zoneinfo, typing, contextlib, statistics, calendar, queue, copy\n"
            "import argparse, configparser, logging, tracemalloc, urllib.parse, email.message\n"
            "import xml.etree.ElementTree as ET\n"
            "import http, heapq, textwrap, difflib, shlex, struct, zlib, hashlib, base64, time, gettext, csv, json"
        ),
        {
            "None, booleans": "[None, True, False, ..., NotImplemented]",
            "integers of any size": "[0, -1, 10**50]",
            "floats, NaN, infinities": "[1.5, float('nan'), float('-inf'), -0.0]",
            "complex": "1 + 2j",
            "str with any character": "'a\\ud800\\x00é😀'",
            "large str": "'text' * 10000",
            "bytes": "b'\\x00\\xff'",
            "bytearray": "bytearray(b'abc')",
            "memory view": "memoryview(b'abc')",
            "array.array": "array.array('d', [1.5, 2.5])",
            "list": "[1, [2, [3]]]",
            "list in itself": "(lambda l: (l.append(l), l)[1])([])",
            "tuple": "(1, (2, [3]))",
            "dict": "{'a': 1, 2: {'b': []}, (3, 4): None}",
            "dict in itself": "(lambda d: (d.update(me=d), d)[1])({})",
            "set": "{1, 'two', (3,)}",
            "frozenset": "frozenset({1, 2})",
            "range": "range(3, 30, 4)",
            "slice": "slice(1, None, 2)",
            "deque": "collections.deque([1, 2, 3], maxlen=4)",
            "defaultdict": "collections.defaultdict(list, a=[1])",
            "OrderedDict": "collections.OrderedDict([('b', 1), ('a', 2)])",
            "Counter": "collections.Counter('hello')",
            "ChainMap": "collections.ChainMap({'a': 1}, {'b': 2})",
            "UserDict": "collections.UserDict(a=1)",
            "namedtuple's class": "collections.namedtuple('Pair', 'x y')(1, [2])",
            "SimpleNamespace": "types.SimpleNamespace(a=[1])",
            "mapping proxy": "types.MappingProxyType({'a': [1]})",
            "thread-local data, as cells see it": "(lambda l: (setattr(l, 'a', [1]), l)[1])(threading.local())",
            "date": "datetime.date(2026, 1, 2)",
            "datetime": "datetime.datetime(2026, 1, 2, 3, 4, 5, 6)",
            "datetime with a zone": "datetime.datetime(2026, 1, 2, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin'))",
            "time": "datetime.time(1, 2)",
            "timedelta": "datetime.timedelta(days=1, microseconds=2)",
            "timezone": "datetime.timezone(datetime.timedelta(hours=2))",
            "Decimal": "decimal.Decimal('1.10')",
            "Fraction": "fractions.Fraction(1, 3)",
            "Path": "pathlib.Path('/tmp') / 'x'",
            "PurePath": "pathlib.PurePosixPath('a/b')",
            "compiled pattern": "re.compile('a+', re.IGNORECASE)",
            "UUID": "uuid.UUID(int=5)",
            "IP address": "ipaddress.ip_network('10.0.0.0/8')",
            "partial": "functools.partial(max, 1, key=abs)",
            "operator getters": "[operator.itemgetter(1), operator.attrgetter('a.b')]",
            "built-in function": "[len, math.sin] if (math := __import__('math')) else 0",
            "bound built-in method": "[1, 2].append",
            "library's class": "collections.OrderedDict",
            "generic alias": "list[int]",
            "typing constructs": "[typing.Optional[int], typing.Union[int, str], typing.Any]",
            "type variable of a library": "typing.AnyStr",
            "template": "string.Template('$a')",
            "random.Random": "random.Random(4)",
            "StringIO": "io.StringIO('text')",
            "BytesIO": "io.BytesIO(b'content')",
            "itertools.count": "itertools.count(5)",
            "exception": "ValueError('wrong', 5)",
            "exception group": "ExceptionGroup('several', [ValueError(1), KeyError(2)])",
            "OSError": "OSError(2, 'No such file', 'x')",
            "argparse namespace": "argparse.Namespace(a=1)",
            "config parser": "(lambda c: (c.read_string('[a]\\nb=1'), c)[1])(configparser.ConfigParser())",
            "logger": "logging.getLogger('mine')",
            "log record": "logging.LogRecord('n', 20, 'p', 1, 'm', (), None)",
            "URL": "urllib.parse.urlparse('http://x/y?z')",
            "e-mail": "(lambda m: (m.set_payload('hi'), m)[1])(email.message.EmailMessage())",
            "XML element": "ET.fromstring('<a><b c=\"1\"/></a>')",
            "HTTP status": "http.HTTPStatus.OK",
            "normal distribution": "statistics.NormalDist(1, 2)",
            "method of a list's class": "list.append",
            "zip of lists": "list(zip([1], [2]))",
            "calendar": "calendar.TextCalendar()",
            "sequence matcher": "difflib.SequenceMatcher(None, 'a', 'b')",
            "text wrapper": "textwrap.TextWrapper(width=5)",
            "struct_time": "time.gmtime(0)",
            "csv dialect": "csv.excel",
            "JSON encoder": "json.JSONEncoder(indent=2)",
        },
    ),
    "What cells define": (
        (
            "import abc, collections, dataclasses, enum, functools, typing, weakref, contextlib\n"
            "base = 3\n"
            "def function(x, *, y=[1]):\n  'doc'\n  return x + base + y[0]\n"
            "def counter():\n  n = 0\n  def count():\n    nonlocal n\n    n += 1\n    return n\n  return count\n"
            "def decorated(f):\n  @functools.wraps(f)\n  def wrapper(*a): return f(*a)\n  return wrapper\n"
            "@decorated\ndef wrapped(x): return x\n"
            "@functools.lru_cache\ndef cached(x): return x * base\n"
            "@functools.singledispatch\ndef dispatched(x): return 'any'\n"
            "def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
            "def generator(n):\n  yield from range(n)\n"
            "async def coroutine(): return 1\n"
            "class Plain:\n  x = 1\n  def __init__(self, v=2): self.v = v\n  def get(self): return self.v + base\n"
            "  @property\n  def twice(self): return self.v * 2\n  @staticmethod\n  def s(): return 's'\n"
            "  @classmethod\n  def c(cls): return cls.x\n"
            "class Child(Plain):\n  def get(self): return super().get() * 2\n"
            "class Slots:\n  __slots__ = ('a', 'b')\n  def __init__(self): self.a = 1\n"
            "class State:\n  def __init__(self): self.n = 1\n  def __getstate__(self): return {'n': self.n}\n"
            "  def __setstate__(self, s): self.n = s['n'] + 1 - 1\n"
            "class Outer:\n  class Inner:\n    class Innermost: pass\n"
            "class Recursive:\n  def __init__(self): self.me, self.kind = self, Recursive\n"
            "class Shape(abc.ABC):\n  @abc.abstractmethod\n  def area(self): ...\n"
            "class Square(Shape):\n  def area(self): return 4\n"
            "class Meta(type):\n  def __new__(m, n, b, d): return super().__new__(m, n, b, {**d, 'made': True})\n"
            "class Made(metaclass=Meta): pass\n"
            "class Color(enum.Enum):\n  RED = 1\n  GREEN = 'g'\n"
            "class Flags(enum.Flag):\n  A = 1\n  B = 2\n"
            "class Level(enum.IntEnum):\n  LOW = 1\n"
            "@dataclasses.dataclass\nclass Point:\n  x: int\n  tags: list = dataclasses.field(default_factory=list)\n"
            "@dataclasses.dataclass(frozen=True, slots=True)\nclass Frozen:\n  x: int\n"
            "class Pair(typing.NamedTuple):\n  x: int\n  y: list\n"
            "class Record(typing.TypedDict):\n  a: int\n"
            "class Proto(typing.Protocol):\n  def m(self): ...\n"
            "class MyList(list): pass\n"
            "class MyDict(dict): pass\n"
            "class MyInt(int): pass\n"
            "class MyStr(str): pass\n"
            "class MyError(Exception):\n  def __init__(self, a): super().__init__(a); self.a = a\n"
            "class Descriptor:\n  def __get__(self, o, k): return 7\n"
            "class Owner:\n  d = Descriptor()\n"
            "class Late:\n  @functools.cached_property\n  def v(self): return [1]\n"
            "class Callable:\n  def __call__(self): return base\n"
            "class Init:\n  kinds = []\n  def __init_subclass__(cls): Init.kinds.append(cls.__name__)\n"
            "class Sub(Init): pass\n"
            "T = typing.TypeVar('T')\n"
            "class Box(typing.Generic[T]):\n  def __init__(self, v): self.v = v\n"
        ),
        {
            "function": "function",
            "lambda": "lambda x: x * base",
            "closure": "counter()",
            "decorated function": "wrapped",
            "recursive function": "fib",
            "generator function": "generator",
            "async function": "coroutine",
            "cached function": "cached",
            "single-dispatch function": "dispatched",
            "class": "Plain",
            "instance": "Plain(5)",
            "bound method": "Plain(6).get",
            "class method": "Plain.c",
            "inherited instance": "Child(1)",
            "instance with slots": "Slots()",
            "instance with __getstate__": "State()",
            "nested class": "Outer.Inner.Innermost()",
            "instance that holds itself and its class": "Recursive()",
            "abstract class's child": "Square()",
            "class of a metaclass": "Made",
            "enum member": "Color.RED",
            "enum class": "Color",
            "flags": "Flags.A | Flags.B",
            "integer enum": "Level.LOW",
            "dataclass": "Point(1, ['a'])",
            "frozen dataclass with slots": "Frozen(1)",
            "typed named tuple": "Pair(1, [2])",
            "typed dict": "Record(a=1)",
            "protocol": "Proto",
            "child of list": "MyList([1, 2])",
            "child of dict": "MyDict(a=1)",
            "child of int": "MyInt(4)",
            "child of str": "MyStr('s')",
            "exception of one's own": "MyError(3)",
            "descriptor's owner": "Owner()",
            "cached property": "(lambda l: (l.v, l)[1])(Late())",
            "callable instance": "Callable()",
            "__init_subclass__": "Sub()",
            "generic class": "Box[int](3)",
            "method of one's own class, unbound": "Plain.get",
            "weak reference": "(weakref.ref(Plain), Plain)",
            "dead weak reference": "weakref.ref(Plain())",
            "weak dictionary": "weakref.WeakKeyDictionary({Plain: 1})",
            "class method's wrapper with attributes": "(lambda m: (setattr(m, 'note', [1]), m)[1])(classmethod(function))",
            "weak set": "weakref.WeakSet([Plain])",
            "partial of one's own function": "functools.partial(function, 2)",
        },
    ),
    "NumPy": (
        "import numpy as np",
        {
            "array": "np.arange(12.0).reshape(3, 4)",
            "Fortran order": "np.asfortranarray(np.arange(6).reshape(2, 3))",
            "array of no elements": "np.zeros((0, 3))",
            "array without axes": "np.array(3)",
            "big-endian": "np.arange(4, dtype='>i4')",
            "float16": "np.arange(3, dtype=np.float16)",
            "complex array": "np.array([1 + 2j])",
            "booleans": "np.array([True, False])",
            "text array": "np.array(['a', 'bcd'])",
            "StringDType": "np.array(['a', 'long' * 20], dtype=np.dtypes.StringDType())",
            "bytes array": "np.array([b'a', b'bc'])",
            "datetime64": "np.array(['2020-01-01', 'NaT'], dtype='M8[D]')",
            "structured array": "np.array([(1, 2.0)], dtype=[('a', 'i4'), ('b', 'f8')])",
            "record array": "np.rec.array([(1, 2.0)], dtype=[('a', 'i4'), ('b', 'f8')])",
            "array of objects": "np.array([1, 'a', [2]], dtype=object)",
            "masked array": "np.ma.masked_array([1.0, 2.0], [True, False])",
            "scalar": "np.float32(2.5)",
            "dtype": "np.dtype([('a', 'i4')])",
            "ufunc": "np.add",
            "limits of a type": "[np.finfo(np.float32), np.iinfo(np.int8)]",
            "polynomial": "np.polynomial.Polynomial([1, 2])",
            "poly1d": "np.poly1d([1, 2])",
            "Generator": "np.random.default_rng(3)",
            "RandomState": "np.random.RandomState(3)",
            "seed sequence": "np.random.SeedSequence(5)",
            "vectorized function": "np.vectorize(abs)",
            "ufunc of a function": "np.frompyfunc(lambda a, b: a * 2 + b, 2, 1, identity=0)",
        },
    ),
    "pandas": (
        "import pandas as pd, numpy as np",
        {
            "DataFrame": "pd.DataFrame({'a': [1, 2], 'b': ['x', None], 'c': [1.5, float('nan')]})",
            "DataFrame with several indexes": "pd.DataFrame({'v': [1, 2]}, index=pd.MultiIndex.from_product([[1], ['a', 'b']]))",
            "Series": "pd.Series([1, 2], name='s')",
            "categories": "pd.Series(['a', 'b', 'a'], dtype='category')",
            "nullable integers": "pd.Series([1, None], dtype='Int64')",
            "strings": "pd.Series(['a', None], dtype='string')",
            "times with a zone": "pd.date_range('2026-01-01', periods=3, tz='UTC').to_series()",
            "periods": "pd.period_range('2026-01', periods=2, freq='M')",
            "intervals": "pd.interval_range(0, 3)",
            "sparse": "pd.Series(pd.arrays.SparseArray([0, 0, 1]))",
            "Timestamp": "pd.Timestamp('2026-01-01 12:00')",
            "Timedelta": "pd.Timedelta('1 day')",
            "offset": "pd.offsets.MonthEnd(2)",
            "NA, NaT": "[pd.NA, pd.NaT]",
            "group by": "pd.DataFrame({'a': [1, 1], 'b': [2, 3]}).groupby('a')",
            "rolling window": "pd.Series([1.0, 2.0, 3.0]).rolling(2)",
        },
    ),
    "SciPy": (
        (
            "import numpy as np, scipy.sparse as sp, scipy.interpolate as si, scipy.stats as st, scipy.spatial as ss\n"
            "import scipy.optimize as so, scipy.signal as sg"
        ),
        {
            "CSR matrix": "sp.csr_matrix(np.eye(3))",
            "COO array": "sp.coo_array(np.eye(3))",
            "LIL matrix": "sp.lil_matrix(np.eye(3))",
            "spline": "si.CubicSpline([0, 1, 2], [0, 1, 0])",
            "interpolator": "si.interp1d([0, 1], [0, 2])",
            "frozen distribution": "st.norm(1, 2)",
            "k-d tree": "ss.cKDTree(np.random.default_rng(0).random((20, 2)))",
            "rotation": "ss.transform.Rotation.from_euler('z', 90, degrees=True)",
            "result of an optimization": "so.minimize(lambda x: (x**2).sum(), [1.0])",
            "filter": "sg.butter(2, 0.2)",
        },
    ),
    "scikit-learn": (
        (
            "import numpy as np\nX = np.random.default_rng(0).random((30, 3)); y = (X[:, 0] > 0.5).astype(int)\n"
            "from sklearn.linear_model import LinearRegression, LogisticRegression\n"
            "from sklearn.ensemble import RandomForestClassifier\nfrom sklearn.svm import SVC\n"
            "from sklearn.tree import DecisionTreeClassifier\nfrom sklearn.cluster import KMeans\n"
            "from sklearn.decomposition import PCA\nfrom sklearn.pipeline import make_pipeline\n"
            "from sklearn.preprocessing import StandardScaler, FunctionTransformer\n"
            "from sklearn.neighbors import KNeighborsClassifier\nfrom sklearn.model_selection import GridSearchCV, KFold\n"
            "from sklearn.feature_extraction.text import TfidfVectorizer\n"
        ),
        {
            "linear regression": "LinearRegression().fit(X, y)",
            "logistic regression": "LogisticRegression().fit(X, y)",
            "forest": "RandomForestClassifier(3, random_state=0).fit(X, y)",
            "support vectors": "SVC().fit(X, y)",
            "tree": "DecisionTreeClassifier().fit(X, y)",
            "k-means": "KMeans(2, n_init=1, random_state=0).fit(X)",
            "PCA": "PCA(2).fit(X)",
            "pipeline": "make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)",
            "transformer of one's own function": "FunctionTransformer(lambda X: X * 2).fit(X)",
            "neighbours": "KNeighborsClassifier().fit(X, y)",
            "grid search": "GridSearchCV(LogisticRegression(), {'C': [1, 2]}, cv=2).fit(X, y)",
            "folds": "KFold(3, shuffle=True, random_state=1)",
            "text features": "TfidfVectorizer().fit(['a cat', 'a dog'])",
        },
    ),
    "matplotlib, networkx": (
        (
            "import matplotlib; matplotlib.use('Agg')\nimport matplotlib.pyplot as plt, numpy as np, networkx as nx\n"
            "def figure():\n  f, (a, b) = plt.subplots(1, 2); a.plot([1, 2], label='l'); a.legend(); b.imshow(np.eye(3))\n"
            "  plt.close(f); return f\n"
        ),
        {
            "figure": "figure()",
            "axes": "figure().axes[0]",
            "line": "figure().axes[0].lines[0]",
            "colour map": "plt.get_cmap('viridis')",
            "normalization": "matplotlib.colors.LogNorm(1, 10)",
            "graph": "nx.path_graph(4)",
            "directed graph with attributes": "nx.DiGraph([(1, 2, {'w': 3})])",
            "multigraph": "nx.MultiGraph([(1, 2), (1, 2)])",
        },
    ),
    "PyTorch": (
        (
            "import torch, numpy as np\nfrom torch import nn\nfrom torch.utils import data\n"
            "torch.manual_seed(0)\n"
            "class Net(nn.Module):\n  def __init__(self):\n    super().__init__(); self.a = nn.Linear(3, 4)\n"
            "    self.b = nn.Linear(4, 2)\n"
            "    self.register_buffer('buffer', torch.ones(2))\n  def forward(self, x): return self.b(self.a(x).relu())\n"
            "net = Net(); opt = torch.optim.AdamW(net.parameters()); net(torch.ones(2, 3)).sum().backward(); opt.step()\n"
            "class Squares(data.Dataset):\n  def __len__(self): return 5\n  def __getitem__(self, i): return i * i\n"
        ),
        {
            "tensor": "torch.arange(6.0).reshape(2, 3)",
            "transposed tensor": "torch.arange(6.0).reshape(2, 3).T",
            "expanded tensor": "torch.ones(1, 3).expand(4, 3)",
            "bfloat16": "torch.ones(2, dtype=torch.bfloat16)",
            "float8": "torch.ones(2).to(torch.float8_e4m3fn)",
            "conjugated tensor": "torch.complex(torch.ones(2), torch.ones(2)).conj()",
            "sparse tensor": "torch.eye(3).to_sparse()",
            "CSR tensor": "torch.eye(3).to_sparse_csr()",
            "quantized tensor": "torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)",
            "meta tensor": "torch.empty(2, device='meta')",
            "Parameter": "nn.Parameter(torch.ones(2))",
            "leaf with a gradient": "(lambda t: ((t * 2).sum().backward(), t)[1])(torch.ones(2, requires_grad=True))",
            "module": "net",
            "Sequential": "nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout())",
            "LSTM": "nn.LSTM(2, 3)",
            "Transformer layer": "nn.TransformerEncoderLayer(4, 2, 8)",
            "ModuleDict, ParameterList": "[nn.ModuleDict({'a': nn.Linear(1, 1)}), nn.ParameterList([torch.ones(1)])]",
            "Embedding": "nn.Embedding(4, 2)",
            "loss": "nn.CrossEntropyLoss()",
            "SGD": "torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)",
            "AdamW with state": "opt",
            "LR scheduler": "torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)",
            "lambda LR scheduler": "torch.optim.lr_scheduler.LambdaLR(opt, lambda e: 0.9**e)",
            "OneCycle scheduler": "torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, 5)",
            "gradient scaler": "torch.amp.GradScaler('cpu')",
            "Generator": "torch.Generator().manual_seed(5)",
            "dataset": "Squares()",
            "TensorDataset": "data.TensorDataset(torch.arange(4))",
            "random split": "data.random_split(range(4), [2, 2])",
            "DataLoader": "data.DataLoader(Squares(), batch_size=2)",
            "sampler": "data.RandomSampler(range(3))",
            "distribution": "torch.distributions.Normal(0.0, 1.0)",
            "dtype, device, size": "[torch.float16, torch.device('cpu'), torch.Size([1, 2])]",
            "state dict": "net.state_dict()",
            "averaged model": "torch.optim.swa_utils.AveragedModel(net)",
            "packed sequence": "nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])",
            "storage": "torch.ones(3).untyped_storage()",
        },
    ),
}

#: What cannot be kept: the sentence that the user reads.
NAMED: dict[str, tuple[str, dict[str, str]]] = {
    "the process's own": (
        (
            "import asyncio, concurrent.futures, contextvars, inspect, io, mmap, multiprocessing, os, select, socket\n"
            "import sqlite3, subprocess, sys, tempfile, threading, torch, types, weakref\n"
            "class Thing: pass\nthing = Thing()\nasync def coroutine(): pass\n"
            "def frame(): return sys._getframe()\n"
            "def generator():\n  yield 1\n"
            "async def agenerator():\n  yield 1\n"
            "def taken(lock): return lock.acquire() and lock\n"
            "def error():\n  try: 1 / 0\n  except ZeroDivisionError as e: return e.__traceback__\n"
        ),
        {
            "generator": "generator()",
            "async generator": "agenerator()",
            "coroutine": "(lambda c: (c.close(), c)[1])(coroutine())",
            "file that is written": "keep(open(os.devnull, 'w'))",
            "open device": "keep(open(os.devnull, 'rb'))",
            "temporary file": "keep(tempfile.TemporaryFile())",
            "socket": "keep(socket.socket())",
            "lock that is taken": "taken(threading.Lock())",
            "re-entrant lock that is taken": "taken(threading.RLock())",
            "condition that is taken": "taken(threading.Condition())",
            "finalizer": "weakref.finalize(thing, print)",
            "temporary folder": "keep(tempfile.TemporaryDirectory(), 'cleanup')",
            "thread": "threading.Thread()",
            "thread-local data of a class of its own": "type('Mine', (threading.local,), {})()",
            "pool of workers": "keep(concurrent.futures.ThreadPoolExecutor(), 'shutdown')",
            "future": "concurrent.futures.Future()",
            "event loop": "keep(asyncio.new_event_loop())",
            "memory map": "keep(mmap.mmap(-1, 10))",
            "database": "keep(sqlite3.connect(':memory:'))",
            "frame": "frame()",
            "traceback": "error()",
            "process": "multiprocessing.Process()",
            "pipe": "keep(multiprocessing.Pipe()[0])",
            "context variable": "contextvars.ContextVar('v')",
            "module made by hand": "types.ModuleType('by_hand')",
            "hash": "__import__('hashlib').sha256()",
            "compressor": "__import__('zlib').compressobj()",
            "poll object": "select.poll()",
            "parametrized module": "torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))",
            "ctypes pointer": "__import__('ctypes').pointer(__import__('ctypes').c_int(1))",
        },
    ),
}


def namespace(setup: str, expression: str) -> dict[str, Any]:
    """As a notebook would have it after a cell with `setup` and one that binds `x`."""
    opened: list[Any] = []

    def keep(thing: Any, close: str = "close") -> Any:
        opened.append(getattr(thing, close))
        return thing

    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(setup, "<setup>", "exec"), names)
    hidden = {"keep": keep, **names}
    names["x"] = eval(compile(expression, "<cell>", "eval"), hidden if "keep(" in expression else names)
    names["__opened__"] = opened
    return names
