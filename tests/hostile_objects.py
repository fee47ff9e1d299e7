"""Objects that do their worst while somebody saves them, brings them back, or only asks what they are."""

from __future__ import annotations

from typing import Any

_ERRORS = "ValueError('no'), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(), MemoryError(), Own()"
_DEFINITIONS = """
import weakref
class Own(BaseException):
    def __str__(self): raise ValueError('no text')
class Mute(Exception):
    def __str__(self): raise Own
class Masked(Exception):
    @property
    def __class__(self): raise ValueError('no class')
class Numb(Exception):
    def __str__(self): return Text('a text of its own kind')
class Text(str):
    def split(self, *args): raise ValueError('no parts')
class Plain: pass
def broken(*args): raise Own
"""

# What each of them is, and the lines that make `hostile`.
_ONES = {
    "its class raises": "class H:\n @property\n def __class__(self): raise ValueError('no class')\nhostile = H()",
    "its class raises no Exception": "class H:\n @property\n def __class__(self): raise Own\nhostile = H()",
    "its class lies": "class H:\n __class__ = list\nhostile = H()",
    "its class is no class": "class H:\n @property\n def __class__(self): return 5\nhostile = H()",
    "a proxy whose object is gone": "hostile = weakref.proxy(Plain())",
    "a proxy that is made of nothing": (
        "def make(): return weakref.proxy(Plain())\nclass H:\n def __reduce__(self): return make, ()\nhostile = H()"
    ),
    "a list with a proxy that is made of nothing": (
        "def make(): return [weakref.proxy(Plain())]\n"
        "class H:\n def __reduce__(self): return make, ()\nhostile = [H(), None]"
    ),
    "an attribute that raises": "class H:\n def __getattribute__(self, name): raise ValueError(name)\nhostile = H()",
    "an attribute that recurses": (
        "class H:\n def __getattr__(self, name): return self.__getattr__(name)\nhostile = H()"
    ),
    "its attributes raise": "class H:\n @property\n def __dict__(self): raise Own\nhostile = H()",
    "a metaclass whose attributes raise": (
        "class M(type):\n def __getattribute__(cls, name): raise ValueError(name)\n"
        "class H(metaclass=M): pass\nhostile = H()"
    ),
    "a class whose attributes raise": (
        "class M(type):\n def __getattribute__(cls, name): raise Own\nclass H(metaclass=M): pass\nhostile = H"
    ),
    "a metaclass that compares and has no hash": (
        "class M(type):\n def __eq__(cls, other): raise Own\nclass H(metaclass=M): pass\nhostile = H()"
    ),
    "a metaclass whose hash raises": (
        "class M(type):\n def __hash__(cls): raise Own\nclass H(metaclass=M): pass\nhostile = H(), H"
    ),
    "a metaclass that judges instances": (
        "class M(type):\n def __instancecheck__(cls, one): raise Own\n def __subclasscheck__(cls, one): raise Own\n"
        "class H(metaclass=M): pass\nhostile = H(), H"
    ),
    "a metaclass that makes one class only": (
        "class M(type):\n made = []\n def __new__(meta, name, bases, content, **more):\n"
        "  if M.made: raise Own\n  M.made.append(1); return super().__new__(meta, name, bases, content)\n"
        "class H(metaclass=M): pass\nhostile = H()"
    ),
    "a class of no module": "class H: pass\nH.__module__ = 5\nhostile = H()",
    "a class of a module that is not there": "class H: pass\nH.__module__ = 'not.there'\nhostile = H()",
    "a class that says it is NumPy's": (
        "class H:\n __module__ = 'numpy'\n @property\n def dtype(self): raise Own\nhostile = H()"
    ),
    "a class that looks like an array of objects": (
        "class D: hasobject = True\nclass H:\n __module__ = 'numpy'\n dtype = D()\n flat = 5\nhostile = H()"
    ),
    "nonsense instead of how it is made": [
        f"class H:\n def __reduce_ex__(self, protocol): return {nonsense}\nhostile = H()"
        for nonsense in (
            *(
                "None",
                "5",
                "()",
                "(1,)",
                "(int,)",
                "(int, 5)",
                "(int, ('no',))",
                "'not there'",
                "(int, (), 1, 2, 3, 4)",
            ),
            *("(int, (), None, 5)", "(list, (), None, [None].__iter__)", "(dict, (), None, None, iter([1]))"),
            *("(5, ())", "(broken, ())", "(object, (), 7)", "(list, (), None, map(broken, [1]))", "(int,) * 7"),
            *(
                "(Plain, (), (None, 5))",
                "(Plain, (), ({}, 5))",
                "(Plain, (), {5: 1})",
                "(dict, (), None, None, iter([([], 1)]))",
            ),
            *("(Plain, (), 1, None, None, broken)", "(set, ([[]],))", "(frozenset, ([Plain(), []],))", "Text('H')"),
        )
    ],
    "an error while it is saved": [
        f"class H:\n def __reduce_ex__(self, protocol): raise {error}\nhostile = H()"
        for error in (*_ERRORS.split(", "), "Mute()", "Masked()", "Numb()", "RecursionError()")
    ],
    "an error while its state is read": [
        f"class H:\n def __getstate__(self): raise {error}\nhostile = H()" for error in _ERRORS.split(", ")
    ],
    "an error while it gets its state": [
        f"class H:\n def __init__(self): self.a = 1\n def __setstate__(self, state): raise {error}\nhostile = H()"
        for error in (*_ERRORS.split(", "), "Mute()", "Masked()", "Numb()")
    ],
    "an error while it is made": [
        f"def make(): raise {error}\nclass H:\n def __reduce__(self): return make, ()\nhostile = H()"
        for error in (*_ERRORS.split(", "), "Mute()", "Masked()", "Numb()")
    ],
    "endless recursion": "class H:\n def __reduce__(self): return self.__reduce__()\nhostile = H()",
    "endless recursion while it is made": (
        "def make(): return make()\nclass H:\n def __reduce__(self): return make, ()\nhostile = H()"
    ),
    "nested too deeply": "hostile = []\nfor _ in range(20_000): hostile = [hostile]",
    "a hash that needs attributes": (
        "class H:\n def __init__(self): self.key = 1\n def __hash__(self): return hash(self.key)\nhostile = {H()}"
    ),
    "keys whose hash raises when they come back": [
        "class H:\n made = []\n def __hash__(self):\n  if H.made: raise Own\n  return 1\n"
        f" def __setstate__(self, state): H.made.append(1)\n def __getstate__(self): return 1\nhostile = {collection}"
        for collection in ("{H()}", "{H(): 1}", "frozenset({H()})")
    ],
    "comparisons that raise": (
        "class H:\n def __eq__(self, other): raise Own\n __hash__ = None\n def __bool__(self): raise Own\n"
        " def __len__(self): raise Own\n def __iter__(self): raise Own\n def __repr__(self): raise Own\nhostile = H()"
    ),
    "its end raises": "class H:\n def __del__(self): raise ValueError('no end')\nhostile = H()",
    "a list that takes nothing": (
        "class H(list):\n def append(self, item): raise Own\n def extend(self, items): raise Own\nhostile = H([1, 2])"
    ),
    "a dict that takes nothing": "class H(dict):\n def __setitem__(self, key, value): raise Own\nhostile = H([(1, 2)])",
    "a list that shows nothing": "class H(list):\n def __iter__(self): raise Own\nhostile = H([1, 2])",
    "a dict that shows nothing": (
        "class H(dict):\n def items(self): raise Own\n def values(self): raise Own\nhostile = H([(1, 2)])"
    ),
    "an exception that is not made of its arguments": (
        "class H(Exception):\n def __init__(self, one, two): super().__init__(one)\nhostile = H(1, 2)"
    ),
    "a property in a slot's place": (
        "class H:\n __slots__ = ('a',)\n def __getattribute__(self, name): raise Own\nhostile = H()"
    ),
    "a weak reference whose callback raises": "kept = Plain()\nhostile = [weakref.ref(kept, broken), kept]",
    "an enumeration that finds nothing": (
        "import enum\nclass H(enum.Enum):\n A = 1\n @classmethod\n def _missing_(cls, value): raise Own\n"
        " def __reduce_ex__(self, protocol): return H, (2,)\nhostile = H.A"
    ),
    "a module that was made by hand and raises": (
        "import types\nclass H(types.ModuleType):\n def __getattribute__(self, name): raise Own\nhostile = H('made')"
    ),
}

#: All of them, by what they are.
HOSTILE: dict[str, str] = {
    f"{what} ({number})" if isinstance(lines, list) else what: each
    for what, lines in _ONES.items()
    for number, each in enumerate(lines if isinstance(lines, list) else [lines])
}


def hostile(what: str) -> tuple[Any, dict[str, Any]]:
    """One of them, and the globals of its functions: as a cell makes it."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(_DEFINITIONS + HOSTILE[what], "<cell>", "exec"), namespace)
    return namespace["hostile"], namespace
