"""For a name that is gone: which cell made it, as far as the cells' texts show."""

from __future__ import annotations

import pytest

from nls_jupyter.supervisor.lineage import Lineage, bound_by

BINDS = {
    "a = b = 1": {"a", "b"},
    "a.x = b[0] = 1": set(),
    "a: int = 1\na += 1": {"a"},
    "(a, [b, *c]) = f()": {"a", "b", "c"},
    "for a, b in c: d = 1\nelse: e = 2": {"a", "b", "d", "e"},
    "with f() as a, g() as (b, c): pass": {"a", "b", "c"},
    "import os.path, numpy as np\nfrom x import y as z": {"os", "np", "z"},
    "def f(a, b=1):\n    c = 1\n    global d\n    d = 2": {"f", "d"},
    "class A(B):\n    x = 1\n    def m(self): global y; y = 1": {"A", "y"},
    "f = lambda a: (b := a)": {"f"},
    "[a for a in b]; {c: d for c, d in e}": set(),
    "[(last := a) for a in b]": {"last"},
    "if (n := len(a)) > 1: pass": {"n"},
    "match a:\n    case [b, *c]: pass\n    case {'k': d, **e}: pass\n    case A() as g: pass": set("bcdeg"),
    "a = await f()\nasync with g() as b: pass": {"a", "b"},
    "files = !ls\n%matplotlib inline\nx = %who_ls": {"files", "x"},
    "%%time\na = 1": {"a"},
    "%%capture out\n%%time\nb = 2": {"b"},
    "%time a = 1\nb = 2": {"a", "b"},
    "%prun -q a = 1": {"a"},
    "a = = 1": set(),
    "%%bash\nx=1": set(),
    "%%bash\nx=1; if [ $x ]; then": set(),
    "a = 1\0": set(),
    "a = " + "(" * 5000 + ")" * 5000: set(),
}


@pytest.mark.parametrize("code", BINDS)
def test_what_a_cell_binds(code: str) -> None:
    assert bound_by(code) == BINDS[code]


def test_the_last_cell_that_bound_a_name_made_it() -> None:
    lineage = Lineage()
    for label, code in (("[1]", "m = 1"), ("[2]", "m = m + 1\nn = 2"), ("[3]", "print(m)")):
        lineage.ran(label, code)
    assert [lineage.maker(name) for name in ("m", "n", "o")] == ["[2]", "[2]", None]
    lineage.forget()
    assert lineage.maker("m") is None
