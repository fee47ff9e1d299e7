"""Standard output and error, prompts, and results: what every cell does."""

from __future__ import annotations

from cases import Cell, case

LATE_THREAD = """
import threading
def speak(turn, text):
    turn.wait(30)
    print(text, flush=True)
turn = threading.Event()
thread = threading.Thread(target=speak, args=(turn, 'late word'))
thread.start()
print('early word')"""

SETUP = "pass"

CASES = (
    case("an empty line and a comment put out nothing", "# nothing\n\n"),
    case("print", "print('a')\nprint('b', 'c', sep='-')"),
    case("print without an end of line", "print('a', end='')\nprint('b', end='!')"),
    case("a cell that ends in the middle of a line", "print('no end', end='')", "print('next')"),
    case(
        "both streams in the order in which they are flushed",
        "import sys\nfor i in range(3):\n"
        "    print('out', i, flush=True)\n    print('err', i, file=sys.stderr, flush=True)",
    ),
    case(
        "both streams without a flush",
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('out again')",
        streams_race=True,
    ),
    case("write and writelines", "import sys\nsys.stdout.write('a\\n')\nsys.stdout.writelines(['b\\n', 'c\\n'])"),
    case("write says how much it wrote", "import sys\nsys.stderr.write('four')"),
    case("carriage returns stay", "print('10 %', end='\\r')\nprint('20 %', end='\\r', flush=True)\nprint('done')"),
    case("control characters and colours stay", "print('\\x1b[31mred\\x1b[0m \\a \\b \\x00 tab\\t|')"),
    case("every alphabet", "print('äöü ñ 漢字 🎉 \\u202eright to left')\n'漢字 🎉'"),
    case("a megabyte of output", "print('x' * 1_000_000)"),
    case("ten thousand lines", "for i in range(10_000): print(i)"),
    case("a megabyte of result", "'y' * 1_000_000"),
    case("binary through the buffer", "import sys\nsys.stdout.buffer.write(b'bytes\\n')"),
    case("undecodable bytes", "print(b'\\xff\\xfe'.decode('utf-8', 'surrogateescape'))"),
    case("undecodable bytes replaced", "print(b'ok \\xff'.decode('utf-8', 'replace'))"),
    case(
        "what a stream is", "import sys\nsys.stdout.encoding, sys.stdout.isatty(), sys.stdout.name, sys.stdin.isatty()"
    ),
    case("reading standard input finds its end", "import sys\nopen(0, closefd=False).read()"),
    case(
        "a stream replaced in a cell",
        "import io, sys\nkept, sys.stdout = sys.stdout, io.StringIO()\nprint('hidden')",
        "text, sys.stdout = sys.stdout.getvalue(), kept\nprint('seen')\ntext",
    ),
    case(
        "a stream redirected",
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as held:\n"
        "    print('held')\nprint('free')\nheld.getvalue()",
    ),
    case(
        "errors redirected into output",
        "import contextlib, sys\nwith contextlib.redirect_stderr(sys.stdout):\n    print('as output', file=sys.stderr)",
    ),
    case("a result", "6 * 7"),
    case("only the last expression is a result", "1\n2\n3"),
    case("a semicolon hides the result", "6 * 7;"),
    case("a semicolon before a comment hides it too", "6 * 7;  # hidden"),
    case("a semicolon in a text does not", "'a;'"),
    case("None is no result", "None"),
    case("an assignment is no result", "x = 5"),
    case("the last results by their names", "'a'", "'b'", "_, __, ___"),
    case("the last result by its number", "'kept'", "list(Out.values())[-1], Out[max(Out)] is _"),
    case("a name of the user's instead of the last result", "_ = 'mine'\n'other'", "_", "del _", "7", "_"),
    case("what was typed", "x = 'typed'", "In[-2], len(In) > 2, _i, _ii"),
    case(
        "a result that prints while it is shown",
        "class Loud:\n    def __repr__(self):\n        print('asked')\n        return 'loud'\nLoud()",
    ),
    case("a long list is folded", "list(range(2000))"),
    case("a nested value is set out in lines", "{'key %d' % i: list(range(i)) for i in range(20)}"),
    case(
        "the value of every line",
        "from IPython.core.interactiveshell import InteractiveShell\nget_ipython().ast_node_interactivity = 'all'",
        "1\nprint('between')\n'two'\nNone\n3;\n4",
        "get_ipython().ast_node_interactivity = 'last_expr'",
    ),
    case(
        "the value of the last assignment",
        "get_ipython().ast_node_interactivity = 'last_expr_or_assign'",
        "y = 5",
        "get_ipython().ast_node_interactivity = 'last_expr'",
    ),
    case("input", Cell("name = input('name? ')\nf'hello {name}'", answers=("ada",))),
    case(
        "input twice with output between",
        Cell("a = input('a: ')\nprint('got', a)\nb = input()\na + b", answers=("1", "2")),
    ),
    case("a password", Cell("import getpass\nlen(getpass.getpass('key: '))", answers=("secret",))),
    case("an empty answer, and one with every alphabet", Cell("input(), input('?')", answers=("", "漢字 🎉"))),
    case("input that the frontend refuses", Cell("input('name? ')", options={"allow_stdin": False})),
    case(
        "refused input can be caught",
        Cell(
            "try:\n    input()\nexcept Exception as error:\n    print(type(error).__name__, 'caught')",
            options={"allow_stdin": False},
        ),
    ),
    case("output before a question comes before it", Cell("print('first', end='')\ninput('then ')", answers=("x",))),
    case("late output of a thread finds its cell", LATE_THREAD, "turn.set()\nthread.join()"),
    case(
        "a cell that outlives its reply",
        Cell(
            "import threading, time\ndef speak_later():\n    time.sleep(0.2)\n    print('later', flush=True)\n"
            "threading.Thread(target=speak_later).start()\nprint('now')",
            late="later\n",
        ),
    ),
    case(
        "a thread that fails",
        Cell(
            "import threading\ndef fail(): raise ValueError('in a thread')\n"
            "thread = threading.Thread(target=fail, name='worker')\nthread.start()\nthread.join()",
            late="ValueError: in a thread",
        ),
    ),
    case(
        "logging",
        "import logging\nlogger = logging.getLogger('mine')\nlogger.warning('careful')\nlogger.info('hidden')",
    ),
    case(
        "logging with a handler",
        "import logging, sys\nlogger = logging.getLogger('mine2')\n"
        "logger.addHandler(logging.StreamHandler(sys.stdout))\nlogger.propagate = False\n"
        "logger.setLevel('DEBUG')\nlogger.debug('details')",
    ),
    case("a warning", "import warnings\nwarnings.warn('old', DeprecationWarning)\nwarnings.warn('take care')"),
    case(
        "a warning as an error",
        "import warnings\nwith warnings.catch_warnings():\n"
        "    warnings.simplefilter('error')\n    warnings.warn('now an error')",
    ),
    case(
        "not stored in the history",
        "'kept'",
        Cell("print('not stored')\n'result'", options={"store_history": False}),
        "_, In[-2]",
    ),
    case("silent", "'kept'", Cell("quiet = 1\nprint('heard')\n'result'", options={"silent": True}), "quiet, _, In[-2]"),
    case("silent and failing", Cell("print('a')\n1/0", options={"silent": True}), "1"),
    case("user expressions", Cell("1", options={"user_expressions": {"sum": "1 + 1", "bad": "1/0", "none": "None"}})),
    case(
        "user expressions see the cell's names",
        Cell("seen = 5", options={"user_expressions": {"a": "seen"}}),
        unlike={"gpu": "user expressions belong to the request, which the notebook's own kernel answers"},
    ),
    case("user expressions of a failed cell", Cell("1/0", options={"user_expressions": {"sum": "1 + 1"}})),
)
