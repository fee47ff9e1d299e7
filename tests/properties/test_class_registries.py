"""Classes that lead to their own instances: what is found in their registries, and by their methods, is found again.

Each program is drawn by its number: classes that inherit, generic ones, dataclasses, with a metaclass, with a state of
their own; and registries of every kind, in a class, a default, or what a decorator remembers.
"""

from __future__ import annotations

import random
import typing
import weakref
from typing import TYPE_CHECKING

import pytest

from effort import examples
from left_out import thinned
from saved_state_roundtrip import cells, of_user

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_ONCE = 40
HEAD = """
import weakref
from dataclasses import dataclass, field
from typing import Generic, TypeVar
T = TypeVar("T")
class Meta(type):
    def __len__(cls): return 3
def remembers(function):
    known = {}
    def asked(self):
        if self not in known:
            known[self] = function(self)
        return known[self]
    asked.known = known
    return asked
"""
REGISTRIES = {
    "set()": "{registry}.add(thing)",
    "{}": "{registry}[thing] = thing.name",
    "[set()]": "{registry}[0].add(thing)",
    "{'x': set()}": "{registry}['x'].add(thing)",
    "weakref.WeakSet()": "{registry}.add(thing)",
    "weakref.WeakKeyDictionary()": "{registry}[thing] = 1",
    "weakref.WeakValueDictionary()": "{registry}[thing.name] = thing",
}
HASHES = [
    "def __hash__(self): return hash(self.name)",
    "def __hash__(self): return hash((self.name, type(self).salt))",
    "def __hash__(self): return hash((super().__class__.__name__, self.name))",
]
DATACLASSES = ["@dataclass(frozen=True)", "@dataclass(unsafe_hash=True)", "@dataclass(unsafe_hash=True, order=True)"]


class Program:
    """Cells that define classes, and make four things of the last one or of one before it."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.depth = self.draw.randint(1, 3)
        self.hashed = self.draw.randrange(self.depth)
        names = [f"{self.draw.choice('ABNXYZ')}{number}" for number in range(self.depth)]
        self.owner = self.draw.choice(names)
        make, put = self.draw.choice(list(REGISTRIES.items()))
        lines = [HEAD, *self._classes(names), f"{self.owner}.registry = {make}"]
        lines += self._maybe(0.5, f"{self.owner}.count = classmethod(lambda cls: len(cls.registry))")
        kind = self.draw.choice([names[-1], names[self.hashed]])
        lines += [f"things = [{kind}(str(number)) for number in range(4)]", "for thing in things:"]
        lines += [f"    {put.format(registry=f'{self.owner}.registry')}"]
        lines += self._maybe(0.4, "    object.__setattr__(thing, 'friends', set(things))")
        lines += self._maybe(0.3, f"    object.__setattr__(thing, 'found_in', {self.owner}.registry)")
        lines += ["    for name in ('remembered', 'counted'):"]
        lines += ["        if hasattr(thing, name): getattr(thing, name)()"]
        lines += self._maybe(0.4, f"{self.draw.choice(['aa', 'zz'])} = {self.owner}.registry")
        lines += self._maybe(0.4, f"{self.draw.choice(['ab', 'zy'])} = {{thing: 1 for thing in things}}")
        lines += self._maybe(0.3, f"{self.draw.choice(['ac', 'zx'])} = frozenset(things)")
        lines += self._maybe(0.2, f"{names[self.hashed]}.all_of_them = frozenset(things)")
        self.source = "\n".join([*lines, "del thing, name"])

    def _maybe(self, chance: float, *lines: str) -> list[str]:
        return list(lines) if self.draw.random() < chance else []

    def _classes(self, names: list[str]) -> list[str]:
        generic, meta = self.draw.random() < 0.4, self.draw.random() < 0.2
        as_data = self.draw.random() < 0.4
        lines = []
        for number, name in enumerate(names):
            above = [names[number - 1] + "[int]" * (generic and number == 1)] if number else []
            above += ["Generic[T]"] if generic and not number else ["metaclass=Meta"] if meta and not number else []
            data = as_data and number == self.hashed
            lines += [self.draw.choice(DATACLASSES)] if data else []
            lines += [f"class {name}({', '.join(above)}):", "    plain = 1"]
            lines += [f"    {line}" for line in self._body(number, data=data)]
        return lines

    def _body(self, number: int, *, data: bool) -> list[str]:
        body = []
        if data:
            body += ["name: str = 'default'", *self._maybe(0.5, "peer: object = field(default=None, compare=False)")]
        elif number == self.hashed:
            body += ["salt = 7", "def __init__(self, name='default'): self.name = name", self.draw.choice(HASHES)]
            body += ["def __eq__(self, other): return type(other) is type(self) and self.name == other.name"]
            body += self._maybe(0.3, "name = 'default'")
        body += self._maybe(
            0.3,
            "def __getstate__(self): return [dict(self.__dict__)]",
            "def __setstate__(self, state): self.__dict__.update(state[0])",
        )
        body += self._maybe(0.3, "@remembers", "def remembered(self): return len(self.name)")
        return body + self._maybe(0.2, "def counted(self, known={}): return known.setdefault(self, len(known))")


def seen(program: Program, space: dict[str, object]) -> list[object]:
    """What a user sees: how much there is, what is found in what, and what is the same."""
    owner, things = space[program.owner], space["things"]
    registry, kind = owner.registry, type(things[0])
    inside = (
        registry[0] if type(registry) is list else registry.get("x", registry) if type(registry) is dict else registry
    )
    keys = [thing.name for thing in things] if type(inside) is weakref.WeakValueDictionary else things
    places = [("registry", inside, keys)]
    places += [("friends", thing.friends, things) for thing in things if hasattr(thing, "friends")]
    places += [(name, space[name], things) for name in ("ab", "zy", "ac", "zx") if name in space]
    places += [("all", kind.all_of_them, things)] if hasattr(kind, "all_of_them") else []
    places += [("remembered", kind.remembered.known, things)] if hasattr(kind, "remembered") else []
    places += [("counted", kind.counted.__defaults__[0], things)] if hasattr(kind, "counted") else []
    found = [(name, len(there), [key in there for key in wanted]) for name, there, wanted in places]
    same = [space[name] is registry for name in ("aa", "zz") if name in space]
    return [*found, *same, *[thing.found_in is registry for thing in things if hasattr(thing, "found_in")]]


@pytest.fixture(autouse=True)
def nothing_is_remembered_by_typing() -> Iterator[None]:
    """What `Generic[...]` was asked for stays in its caches, and a later test would find these classes by them."""
    yield
    for forget in typing._cleanups:  # type: ignore[attr-defined]  # as the tests of Python itself
        forget()


@pytest.mark.parametrize("first", thinned(range(0, examples(600), AT_ONCE), 10, "classes that lead to their instances"))
def test_what_a_class_leads_to_is_found_again_or_named(first: int) -> None:
    compared = 0
    for seed in range(first, first + AT_ONCE):
        program = Program(seed)
        space = cells(program.source)
        before = seen(program, space)
        result = of_user(space)
        if result.manifest.missing or result.report.missing:
            continue
        compared += 1
        assert seen(program, result.namespace) == before, f"{seed}:\n{program.source}"
    assert compared > 0.8 * AT_ONCE
