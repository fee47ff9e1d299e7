"""Shell commands, help, the payloads of a reply, and the shell object itself."""

from __future__ import annotations

from cases import Cell, case

# What a descriptor gets comes by a thread of ipykernel's, before or after a result.
SETUP = "import subprocess\ndef mine(a, b=2):\n    'What it does.'\n    return a + b"

CASES = (
    case("a command", "!echo hello"),
    case("a command that fails", "!echo broken >&2; exit 3", "_exit_code"),
    case("a command with a variable", "name = 'ada'\n!echo {name} $name $$HOME_OF_NOBODY"),
    case("the lines of a command", "lines = !printf 'a\\nb\\n'\nlines", "lines.s, lines.n, lines.grep('a')"),
    case("the lines of a command at once", "!!printf 'a\\nb\\n'"),
    case("a command with colours and a long line", "!printf '\\033[31mred\\033[0m\\n'; printf '%0300d\\n' 0"),
    case("a command with bytes that are no text", "!printf 'a\\377b\\n'"),
    case("a command between prints", "print('a')\n!echo b\nprint('c')"),
    case("a command in the background of a line", "!(echo one; echo two) | sort -r"),
    case("os.system", Cell("import os\nos.system('echo from the system');", late="from the system\n")),
    case(
        "subprocess that inherits the streams",
        Cell("import subprocess\nsubprocess.run(['echo', 'inherited']);", late="inherited\n"),
    ),
    case(
        "subprocess that writes an error",
        Cell("subprocess.run('echo wrong >&2; exit 2', shell=True);", late="wrong\n"),
    ),
    case("subprocess that is captured", "subprocess.run(['echo', 'captured'], capture_output=True, text=True).stdout"),
    case("subprocess with a pipe", "subprocess.run(['tr', 'a-z', 'A-Z'], input=b'loud', capture_output=True).stdout"),
    case("subprocess that fails", "subprocess.run(['false'], check=True)"),
    case(
        "writing to the descriptor itself",
        Cell("import os\nos.write(1, b'raw descriptor\\n');", late="raw descriptor\n"),
    ),
    case("a command that is interrupted", Cell("!echo up; sleep 60", interrupt_at="up"), "'lives'"),
    case("help", "len?"),
    case("help with the source", "def mine(a, b=2):\n    'What it does.'\n    return a + b\n", "mine??"),
    case("help by a question mark in front", "?str.upper"),
    case("help for names with a star", "*int*?"),
    case("help for what is not there", "no_such_name?"),
    case("help for a magic", "%precision?"),
    case("pinfo and pdoc", "%pinfo len", "%pdoc len", "%psource mine", "%pdef mine", "%pfile json.decoder"),
    case("the help function", "help(len)"),
    case("a pager by hand", "from IPython.core import page\npage.page('long text')"),
    case("the next cell", "get_ipython().set_next_input('x = 1')"),
    case("the next cell instead of this one", "get_ipython().set_next_input('x = 2', replace=True)"),
    case("loading a file", "%%writefile loaded.py\nvalue = 5\n", "%load loaded.py"),
    case("recalling a cell", "first = 1", "%recall"),
    case("payloads of a cell that fails", "get_ipython().set_next_input('later')\n1/0"),
    case("a payload of one's own", "get_ipython().payload_manager.write_payload({'source': 'mine', 'n': 1})"),
    case(
        "the shell",
        "type(get_ipython()).__mro__[1].__name__, get_ipython().__class__.__base__.__name__",
        hide=(("ZMQInteractiveShell|InteractiveShell", "SHELL"),),
    ),
    case(
        "running code by the shell",
        "get_ipython().run_cell('print(1); 2').result",
        "get_ipython().ev('1 + 1')",
        "get_ipython().ex('z = 3')\nz",
    ),
    case(
        "a failing cell run by the shell",
        "outcome = get_ipython().run_cell('1/0')\noutcome.success, outcome.error_in_exec",
    ),
    case(
        "code run by the shell without history", "get_ipython().run_cell('5', store_history=False, silent=True).result"
    ),
    case("a magic run by the shell", "get_ipython().run_line_magic('pwd', '')"),
    case(
        "a line magic of one's own",
        "from IPython.core.magic import register_line_magic, register_cell_magic\n"
        "@register_line_magic\ndef shout(line): return line.upper()\n%shout quietly",
    ),
    case(
        "a cell magic of one's own",
        "from IPython.core.magic import register_cell_magic\n"
        "@register_cell_magic\ndef count(line, cell): return len(cell.splitlines())\n",
        "%%count\na\nb\nc",
    ),
    case(
        "hooks before and after cells",
        "calls = []\n"
        "get_ipython().events.register('post_run_cell', note := lambda result: calls.append(result.success))",
        "1",
        "get_ipython().events.unregister('post_run_cell', note)\ncalls",
    ),
    case(
        "a transformer of the input",
        "def louder(lines): return [line.replace('SHOUT', 'print') for line in lines]\n"
        "get_ipython().input_transformers_cleanup.append(louder)",
        "SHOUT('hello')",
        "get_ipython().input_transformers_cleanup.remove(louder)",
    ),
    case(
        "a transformer of the tree",
        "import ast\nclass Twice(ast.NodeTransformer):\n    def visit_Constant(self, node):\n"
        "        if not isinstance(node.value, int): return node\n"
        "        return ast.copy_location(ast.Constant(node.value * 2), node)\n"
        "twice = Twice()\nget_ipython().ast_transformers.append(twice)",
        "21",
        "get_ipython().ast_transformers.remove(twice)",
    ),
    case(
        "where a cell runs",
        "import os, sys, threading\n"
        "__name__, os.getcwd(), threading.current_thread() is threading.main_thread(), sys.getrecursionlimit()",
    ),
    case("what is on the path", "import sys\nsys.path"),
    case("the interpreter", "import sys\nsys.flags, sys.executable, sys.version, sys.warnoptions"),
    case(
        "the signals",
        "import signal\n[signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP)]",
    ),
    case(
        "the limits and the mask of files",
        "import os, resource\nmask = os.umask(0); os.umask(mask)\nmask, resource.getrlimit(resource.RLIMIT_NOFILE)",
    ),
    case("the loop", "import asyncio\ntype(asyncio.get_running_loop()).__name__"),
    case("names that hide what Python has", "list = 5\nlist", "del list\nlist('ab')"),
    case(
        "the main module", "import __main__\nmarker = 1\n__main__.marker, 'marker' in globals(), 'marker' in locals()"
    ),
    case(
        "pickling a class of a cell",
        "import pickle\nclass Kept:\n    pass\ntype(pickle.loads(pickle.dumps(Kept()))).__name__",
    ),
    case("the source of a function of a cell", "import inspect\nprint(inspect.getsource(mine))"),
    case(
        "annotations and dataclasses",
        "from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int = 0\n    y: 'float' = 1.5\n"
        "Point(), Point.__annotations__",
    ),
    case(
        "doctest",
        "def double(x):\n    '''\n    >>> double(2)\n    4\n    '''\n    return 2 * x\nimport doctest\n"
        "doctest.testmod()",
    ),
)
