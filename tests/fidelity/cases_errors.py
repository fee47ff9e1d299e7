"""How cells fail, and how the user stops them."""

from __future__ import annotations

from cases import Cell, case

CUSTOM = "class {name}({base}):\n    pass\nraise {name}({arguments})"
# The word is said when the cell's thread is at one of these lines of the cell, or in a function of that name:
# a print of the cell's own might be interrupted itself.
SETUP = """import asyncio, sys, threading, time
def up_at(*places, cells=threading.get_ident()):
    def there(frame):
        in_cell = frame.f_globals is globals() and frame.f_code.co_name == '<module>'
        here = frame.f_lineno if in_cell else frame.f_code.co_name
        return here in places or frame.f_back is not None and there(frame.f_back)
    def say():
        while not there(sys._current_frames()[cells]):
            time.sleep(0.001)
        print('up')
    threading.Thread(target=say, daemon=True).start()
"""
SLEEP = "import time\nup_at(3)\ntime.sleep(60)"

CASES = (
    case("an error", "1/0"),
    case("output before an error", "print('before')\nundefined"),
    case(
        "an error in a function of another cell",
        "def inner(x):\n    return 1 / x\ndef outer(x):\n    return inner(x)",
        "outer(0)",
    ),
    case("an error in a library", "import json\njson.loads('{')"),
    case("a chain of causes", "try:\n    {}['key']\nexcept KeyError as error:\n    raise ValueError('no') from error"),
    case("an error while another is handled", "try:\n    1/0\nexcept ZeroDivisionError:\n    [][1]"),
    case("a cause that is hidden", "try:\n    1/0\nexcept ZeroDivisionError:\n    raise ValueError('alone') from None"),
    case("a syntax error", "x = (1,\ny = 2"),
    case("a syntax error in the first line", "for"),
    case("an indentation error", "def f():\nreturn 1"),
    case("a tab error and a strange character", "x = 1\ny = “2”"),
    case("a syntax error of compile", "compile('a b', 'their file', 'exec')"),
    case("await outside of a function is none", "import asyncio\nawait asyncio.sleep(0)\n'done'"),
    case("return outside of a function", "return 5"),
    case("a class of the user's", CUSTOM.format(name="Mine", base="Exception", arguments="'text', 5")),
    case(
        "a class named like a builtin", CUSTOM.format(name="ValueError", base="Exception", arguments="'not that one'")
    ),
    case("an exception without a message", "raise RuntimeError"),
    case("an exception with several lines", "raise RuntimeError('first\\nsecond\\n\\nlast')"),
    case("an exception with notes", "error = ValueError('noted')\nerror.add_note('a note')\nraise error"),
    case(
        "an exception whose text fails", "class Mute(Exception):\n    def __str__(self): return 'mute'\nraise Mute(1)"
    ),
    case("a group", "raise ExceptionGroup('several', [ValueError('a'), ExceptionGroup('more', [KeyError('b')])])"),
    case(
        "an error with a traceback of its own",
        "class Own(Exception):\n    def _render_traceback_(self):\n"
        "        return ['one line', 'and another']\nraise Own('hidden')",
    ),
    case(
        "a recursion",
        "def deep(n):\n    return deep(n + 1)\ndeep(0)",
        # The deeper the cell's own frame lies in its process, the fewer of these fit.
        hide=((r"(In \[n\], line 2, in deep\(n\)\n[^\n]*\n[^\n]*\n\n)+", "deep\n"),),
    ),
    case("a recursion that ends well", "def sum_to(n):\n    return n and n + sum_to(n - 1)\nsum_to(700)"),
    case("an assertion", "assert 1 == 2, 'not equal'"),
    case("an attribute with a suggestion", "import math\nmath.sqtr(2)"),
    case("a name with a suggestion", "number = 1\nnumbr"),
    case("an import that fails", "import no_such_module_of_mine"),
    case("an operating system's error", "open('/no/such/file')"),
    case("SystemExit", "raise SystemExit(3)"),
    case("sys.exit with a text", "import sys\nsys.exit('told why')"),
    case("KeyboardInterrupt raised by the cell", "raise KeyboardInterrupt('by hand')"),
    case("StopIteration", "next(iter(()))"),
    case("a Unicode error", "b'\\xff'.decode()"),
    case("GeneratorExit and BaseException", "raise GeneratorExit('base')"),
    case(
        "an error shown by hand",
        "import traceback\ntry:\n    1/0\nexcept ZeroDivisionError:\n"
        "    print(traceback.format_exc().splitlines()[-1])\n    get_ipython().showtraceback()\n'goes on'",
    ),
    case(
        "the modes of tracebacks",
        "%xmode Plain\n",
        "1/0",
        "%xmode Minimal",
        "1/0",
        "%xmode Verbose",
        "def f(a):\n    return a / 0\nf(1)",
        "%xmode Context",
    ),
    case("the last error", "1/0", "import sys\nsys.last_value, sys.last_type.__name__, _"),
    case("a traceback once more", "[][5]", "%tb"),
    case(
        "a handler of the user's",
        "def handler(self, kind, value, trace, tb_offset=None):\n    print('handled', value)\n"
        "get_ipython().set_custom_exc((KeyError,), handler)",
        "{}['k']",
        "get_ipython().set_custom_exc((), None)",
    ),
    case("an excepthook does not matter", "import sys\nsys.excepthook = print\n1/0"),
    case(
        "a result before an error",
        "get_ipython().ast_node_interactivity = 'all'",
        "'shown'\n1/0",
        "get_ipython().ast_node_interactivity = 'last_expr'",
    ),
    case(
        "a figure of a failed cell",
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.figure(figsize=(1, 1))\nplt.plot([1])\n1/0",
    ),
    case(
        "a hook that speaks after a failed cell",
        "def speak(*_): print('after all')\nget_ipython().events.register('post_execute', speak)",
        "1/0",
        "2",
        "get_ipython().events.unregister('post_execute', speak)",
    ),
    case("a cell goes on after a failed one", "1/0", "'fine'"),
    case(
        "an error in await",
        "async def fail():\n    await asyncio.sleep(0)\n    raise OSError('in await')\nawait fail()",
    ),
    case("an error that a finally sees", "try:\n    1/0\nfinally:\n    print('finally')"),
    case("an interrupted sleep", Cell(SLEEP, interrupt_at="up"), "'lives'"),
    case("an interrupted loop", Cell("up_at(2, 3)\nwhile True:\n    pass", interrupt_at="up"), "'lives'"),
    case(
        "an interrupt that is caught",
        Cell(
            "import time\ntry:\n    up_at(4)\n    time.sleep(60)\n"
            "except KeyboardInterrupt:\n    print('caught')\n'the result'",
            interrupt_at="up",
        ),
    ),
    case(
        "an interrupted await",
        Cell("import asyncio\nup_at('select')\nwhile True:\n    await asyncio.sleep(0.05)", interrupt_at="up"),
        "'lives'",
    ),
    case(
        "an interrupted command",
        Cell("import subprocess\nup_at(3)\nsubprocess.run(['sleep', '60'])", interrupt_at="up"),
        "'lives'",
        # Whether the child's end or the interrupt is seen first is the system's choice.
        hide=((r"(?s)KeyboardInterrupt\s+Traceback.*", "KeyboardInterrupt"),),
    ),
    case(
        "a handler of SIGINT of the user's",
        "import signal, time\nbefore = signal.signal(signal.SIGINT, lambda *_: print('stopped', flush=True))",
        Cell(
            "import time\nend = time.monotonic() + 60\nup_at(6)\n"
            "stopped = []\nsignal.signal(signal.SIGINT, lambda *_: stopped.append(1))\n"
            "while not stopped and time.monotonic() < end: time.sleep(0.01)\nstopped",
            interrupt_at="up",
        ),
        "signal.signal(signal.SIGINT, signal.default_int_handler) is not None",
    ),
    case(
        "other signals",
        "import os, signal\nseen = []\nsignal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\nseen == [signal.SIGUSR1]",
    ),
    case(
        "an alarm in the middle of a cell",
        "import signal, time\ndef ring(*_): raise TimeoutError('rang')\n"
        "signal.signal(signal.SIGALRM, ring)\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ntime.sleep(30)",
    ),
)
