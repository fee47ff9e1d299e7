"""What a cell made in the order of a set fits it still after a restore."""

from __future__ import annotations

import contextlib
import hashlib
import random
from typing import TYPE_CHECKING, Any

import pytest

from left_out import thinned
from nls_jupyter import saved_state
from nls_jupyter.saved_state import set_orders
from saved_state_roundtrip import of_user, restore

if TYPE_CHECKING:
    from collections.abc import Callable


class Word(str):
    """A word whose hash is the same in every run, so that a test that holds once holds always."""

    __slots__ = ()

    def __hash__(self) -> int:
        return int.from_bytes(hashlib.blake2b(self.encode(), digest_size=7).digest())


WAYS: dict[str, Callable[[list[Any], random.Random], set[Any]]] = {
    "one after another": lambda members, _: set(members),
    "a copy": lambda members, _: set(members).copy(),
    "a union": lambda members, _: set(members[::2]) | set(members[1::2]),
    "a difference": lambda members, _: set(members) - set(members[::3]),
    "some taken out": lambda members, chance: _without_some(set(members), chance),
}
KINDS: dict[str, Callable[[random.Random], Any]] = {
    "words": lambda chance: Word("".join(chance.choices("abcdefgh", k=6))),
    "numbers": lambda chance: chance.randrange(10**7),
    "pairs": lambda chance: (Word(chance.choice("abc")), chance.randrange(10**5)),
}


def _without_some(members: set[Any], chance: random.Random) -> set[Any]:
    for member in list(members):
        if chance.random() < 0.2:
            members.discard(member)
    return members


@pytest.mark.parametrize("way", thinned(WAYS, 3, "orders of sets"))
@pytest.mark.parametrize("kind", KINDS)
def test_a_set_has_its_order_again_or_is_named(kind: str, way: str) -> None:
    chance, sets = random.Random(f"{kind} {way}"), dict[str, Any]()
    for number in range(40):
        size = chance.choice((2, 3, 5, 8, 20, 77, 150, 600))
        sets[f"set_{number}"] = {"in": [WAYS[way]([KINDS[kind](chance) for _ in range(size)], chance)]}
    orders = {name: list(value["in"][0]) for name, value in sets.items()}
    back = of_user(sets)
    others = {name for name, order in orders.items() if list(back[name]["in"][0]) != order}
    assert others == {changed.name for changed in back.report.changed}
    assert len(others) <= 3
    assert all(set(back[name]["in"][0]) == set(order) for name, order in orders.items())


@pytest.mark.parametrize("kind", thinned(KINDS, 3, "orders of sets"))
def test_a_set_goes_on_as_it_would_have_where_nothing_was_taken_out(kind: str) -> None:
    chance, others = random.Random(kind), list[int]()
    sizes = [chance.choice((8, 18, 20, 50, 76, 100, 306, 400)) for _ in range(60)]
    for size in sizes:
        members = [KINDS[kind](chance) for _ in range(2 * size)]
        found = set(members[:size])
        back = of_user({"found": found})
        assert not back.report.changed
        for member in members[size:]:
            found.add(member)
            back["found"].add(member)
        if list(back["found"]) != list(found):
            others.append(size)
    assert len(others) <= 2, others


def test_members_that_are_told_apart_by_where_they_are_come_back_and_nothing_is_said() -> None:
    back = of_user({"kinds": {int, str, float}, "found": {object(), object()}})
    assert back["kinds"] == {int, str, float}
    assert not back.report.changed


def test_a_set_that_a_thread_changes_meanwhile_hinders_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def hash_of(kind: type) -> Any:
        changing.add((len(changing),))
        return looked_up(kind)

    changing, looked_up = {(0,), (1,)}, set_orders.hash_of
    monkeypatch.setattr(set_orders, "hash_of", hash_of)
    (order,) = set_orders.to_keep([changing])
    assert set(order.members) == {(0,), (1,)}


def test_a_hash_that_fails_costs_nothing_but_the_order() -> None:
    class Moody:
        fails = False

        def __hash__(self) -> int:
            if Moody.fails:
                raise RuntimeError("not now")
            return 5

    found: set[Any] = {Moody(), Moody(), 3}
    order = list(found)
    Moody.fails = True
    assert not set_orders.put_in_order(found, 32, order[::-1])
    Moody.fails = False
    assert len(found) == 3


def test_a_set_that_is_held_by_two_names_is_one_and_in_order() -> None:
    shared = {f"w{number}" for number in range(100)}
    with contextlib.closing(saved_state.Saver()) as saver:
        saver.save({"one": shared, "two": [shared]}, cell=None)
        names: dict[str, Any] = {}
        assert not restore(saver.descriptors(), names).changed
    assert names["one"] is names["two"][0]
    assert list(names["one"]) == list(shared)
