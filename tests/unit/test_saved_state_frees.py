"""What the user deletes after a save or a restore is gone at once: no frame of these is kept by an exception."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import weakref
from typing import ClassVar

import pytest

from nls_jupyter.saved_state import Saver
from nls_jupyter.saved_state.watchdog import SaveStoppedError
from saved_state_roundtrip import restore, saved, taken


class Thing:
    """An instance with attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


class Refusing(Thing):
    """Fails to be pickled, after something else has failed."""

    def __reduce__(self):
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error


class Stuck(Thing):
    """Is never done with being pickled."""

    def __reduce__(self):
        while True:
            pass


class Unmade(Thing):
    """Can be saved, and not be made again."""

    def __reduce__(self):
        return int, ("not a number",)


class Unhashed(Thing):
    """Has a hash that asks for an attribute, and fails with it."""

    def __hash__(self):
        return hash(self.key)


class Node:
    """Is in a set with its neighbours, which lead back to it."""

    def __init__(self, number):
        self.number = number
        self.neighbours = set()

    def __hash__(self):
        return hash(self.number)


def deep():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    return nested


FAILING = {
    "generator": lambda model: (model for _ in range(3)),
    "refusing": lambda model: Refusing(model=model),
    "refusing, within": lambda model: [model, {"within": Refusing()}],
    "lock": lambda model: Thing(model=model, lock=taken()),
    "frame": lambda model: Thing(model=model, frame=sys._getframe()),
    "finalizer": lambda model: Thing(model=model, of=weakref.finalize(model, print)),
    "nested": lambda model: [model, deep()],
    "pointer": lambda model: Thing(model=model, pointer=ctypes.pointer(ctypes.c_int())),
    "stuck": lambda model: Stuck(model=model),
    "large": lambda model: [*range(5000), model, Refusing()],
}


@pytest.fixture
def _no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collection")
@pytest.mark.parametrize("what", FAILING)
def test_what_is_deleted_after_a_save_with_names_that_fail_is_gone_at_once(what):
    model = Thing()
    failing = FAILING[what](model)
    names = {"model": model, "failing": failing, "same": failing, "again": [failing], "other": FAILING[what](model)}
    gone = [weakref.ref(model), *(weakref.ref(one) for one in (failing,) if type(one).__weakrefoffset__)]
    saver = Saver(patience_s=0.2)
    for _ in range(2):
        assert {missing.name for missing in saver.save(names, cell=None).missing} == {*names} - {"model"}
    names.clear()
    del model, failing
    assert [refer() for refer in gone] == [None] * len(gone)
    saver.close()


def frozen_circle():
    node = Node(1)
    node.neighbours = frozenset({node})
    return node


def circle():
    nodes = [Node(number) for number in range(3)]
    for node in nodes:
        node.neighbours.update(nodes)
    return nodes


RESTORED = {
    "cannot be made": lambda model: [model, Unmade()],
    "hash without its attribute": lambda model: [model, {Unhashed(key=1, model=model): Unmade()}],
    "circle": lambda model: [model, circle()],
    "circle with what cannot be made": lambda model: [model, {node: Unmade() for node in circle()}],
    "frozen circle": lambda model: [model, frozen_circle()],
}


@pytest.mark.usefixtures("_no_collection")
@pytest.mark.parametrize("what", RESTORED)
def test_what_is_deleted_after_a_restore_is_gone_at_once(what):
    model = Thing()
    with saved({"model": model, "with_it": RESTORED[what](model)}) as (descriptors, manifest):
        assert not manifest.missing
        namespace = {}
        restore(descriptors, namespace)
    gone = weakref.ref(namespace["model"])
    namespace.clear()
    assert gone() is None


class Telling:
    """Tells whether garbage is collected while it is pickled."""

    told: ClassVar = []

    def __reduce__(self):
        self.told.append(gc.isenabled())
        return Telling, ()


@pytest.mark.parametrize("is_on", [True, False])
def test_garbage_waits_until_a_save_is_over_or_stopped(is_on):
    def stop():
        if Telling.told:
            raise SaveStoppedError

    Telling.told.clear()
    with contextlib.closing(Saver()) as saver:
        (gc.enable if is_on else gc.disable)()
        try:
            saver.save({"telling": Telling()}, cell=None)
            assert gc.isenabled() == is_on
            with pytest.raises(SaveStoppedError):
                saver.save({"telling": Telling()}, cell=None, stop=stop)
            assert gc.isenabled() == is_on
        finally:
            gc.enable()
    assert set(Telling.told) == {False}
