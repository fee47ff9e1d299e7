"""Whatever a namespace's objects share, they share after a restore, and nothing else."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nls_jupyter.saved_state import Saver, arena
from nls_jupyter.saved_state.window import Window
from saved_state_roundtrip import Roundtrip, restore, taken


class Node:
    """An instance with attributes."""


class Passing:
    """Can be saved, and not be made again."""

    def __reduce__(self):
        return int, ("not a number",)


@st.composite
def graphs(draw):
    """Names for objects that refer to one another at random, in cycles too; some views, some locks."""
    count = draw(st.integers(1, 12))
    nodes = []
    for _ in range(count):
        kind = draw(st.sampled_from(["list", "dict", "instance", "array", "view", "set", "objects", "text"]))
        arrays = [node for node in nodes if isinstance(node, np.ndarray) and node.dtype != object]
        if kind == "list":
            nodes.append([])
        elif kind == "dict":
            nodes.append({})
        elif kind == "instance":
            nodes.append(Node())
        elif kind == "set":
            nodes.append({draw(st.integers(0, 5))})
        elif kind == "objects":
            nodes.append(np.array([None, None, None], dtype=object))
        elif kind == "text":
            nodes.append(draw(st.text(max_size=3)))
        elif kind == "view" and arrays:
            nodes.append(draw(views(draw(st.sampled_from(arrays)))))
        else:
            shape = draw(st.lists(st.integers(0, 4), max_size=3))
            nodes.append(np.arange(np.prod(shape), dtype=draw(st.sampled_from(["u1", "i4", "f8"]))).reshape(shape))
    for holder in nodes:
        for position in range(draw(st.integers(0, 3))):
            connect(holder, position, draw(st.sampled_from(nodes)))
    return {f"name{number}": node for number, node in enumerate(nodes) if draw(st.booleans()) or number == 0}


@st.composite
def views(draw, base):
    if draw(st.booleans()):
        base = base.T
    steps = st.sampled_from([slice(None), slice(None, None, -1), slice(1, None), slice(None, None, 2), slice(0, 0)])
    return base[(*(draw(steps) for _ in range(base.ndim)), ...)]


def connect(holder, position, part):
    if isinstance(holder, list):
        holder.append(part)
    elif isinstance(holder, dict):
        holder[position] = part
    elif isinstance(holder, Node):
        setattr(holder, f"attribute{position}", part)
    elif isinstance(holder, np.ndarray) and holder.dtype == object:
        holder[position] = part


def same(before, after, pairs):
    """Isomorphic: one object here for one object there, both ways, and equal leaves."""
    todo = [(before, after)]
    while todo:
        one, other = todo.pop()
        assert type(one) is type(other)
        if isinstance(one, (int, float, str, type(None))):
            assert one == other
            continue
        if id(one) in pairs:
            assert pairs[id(one)][1] is other
            continue
        assert id(other) not in {id(known) for _, known in pairs.values()}
        pairs[id(one)] = (one, other)
        if isinstance(one, dict):
            assert list(one) == list(other)
            todo += zip(one.values(), other.values(), strict=True)
        elif isinstance(one, Node):
            todo.append((vars(one), vars(other)))
        elif isinstance(one, np.ndarray):
            assert (one.shape, one.strides, one.dtype) == (other.shape, other.strides, other.dtype)
            todo += zip(one.ravel().tolist(), other.ravel().tolist(), strict=True)
        else:
            todo += zip(one, other, strict=True)


@settings(max_examples=examples(150), deadline=None)
@given(graphs())
def test_a_restored_namespace_is_isomorphic_to_the_saved_one(names):
    result = Roundtrip(names)
    assert not result.unsaved
    assert set(result.namespace) == set(names)
    same(names, {name: result[name] for name in names}, {})


@settings(max_examples=examples(150), deadline=None)
@given(graphs())
def test_arrays_share_memory_after_a_restore_exactly_if_they_did_before(names):
    result = Roundtrip(names)
    pairs = {}
    same(names, {name: result[name] for name in names}, pairs)
    arrays = [pair for pair in pairs.values() if isinstance(pair[0], np.ndarray) and pair[0].dtype != object]
    for one, one_after in arrays:
        for other, other_after in arrays:
            assert np.shares_memory(one, other) == np.shares_memory(one_after, other_after)


@settings(max_examples=examples(100), deadline=None)
@given(graphs(), st.data())
def test_names_that_reach_something_unsavable_are_named_and_exactly_those(names, data):
    nodes = [node for node in names.values() if isinstance(node, (list, dict))]
    bad = taken()
    for node in data.draw(st.lists(st.sampled_from(nodes), max_size=2)) if nodes else []:
        connect(node, 99, bad)
    result = Roundtrip(names)
    assert set(result.unsaved) == {name for name, value in names.items() if reaches(value, bad)}
    assert set(result.namespace) == set(names) - set(result.unsaved)
    kept = {name: names[name] for name in names if name in result.namespace}
    same(kept, {name: result[name] for name in kept}, {})


@settings(max_examples=examples(60), deadline=None)
@given(graphs(), st.data())
def test_names_that_reach_something_unrestorable_are_named_and_exactly_those(names, data):
    bad = Passing()
    holders = [node for node in names.values() if isinstance(node, (list, dict, Node))]
    for node in data.draw(st.lists(st.sampled_from(holders), max_size=2)) if holders else []:
        connect(node, 99, bad)
    result = Roundtrip(names)
    assert not result.unsaved
    lost = {name for name, value in names.items() if reaches(value, bad)}
    assert {missing.name for missing in result.report.missing} == lost
    assert all("not a number" in missing.reason for missing in result.report.missing)
    assert set(result.namespace) == set(result.report.restored) == set(names) - lost
    kept = {name: names[name] for name in names if name not in lost}
    pairs = {}
    same(kept, {name: result[name] for name in kept}, pairs)
    arrays = [pair for pair in pairs.values() if isinstance(pair[0], np.ndarray) and pair[0].dtype != object]
    for one, one_after in arrays:
        for other, other_after in arrays:
            assert np.shares_memory(one, other) == np.shares_memory(one_after, other_after)


def reaches(value, target):
    seen, todo = set(), [value]
    while todo:
        node = todo.pop()
        if node is target:
            return True
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, (list, dict)):
            todo += node if isinstance(node, list) else node.values()
        elif isinstance(node, Node):
            todo += vars(node).values()
        elif isinstance(node, np.ndarray) and node.dtype == object:
            todo += node.tolist() if node.ndim else []
    return False


@st.composite
def edits(draw):
    """What cells do between two saves, as numbers that `edit` understands."""
    numbers = st.integers(0, 1000)
    return draw(st.lists(st.tuples(st.sampled_from(sorted(EDITS)), numbers, numbers, numbers), min_size=1, max_size=4))


def containers(names):
    found, todo = {}, list(names.values())
    while todo:
        node = todo.pop()
        if id(node) in found or not isinstance(node, (list, dict, Node)):
            continue
        found[id(node)] = node
        todo += node if isinstance(node, list) else node.values() if isinstance(node, dict) else vars(node).values()
    return list(found.values())


def name_something(names, which, what, _):
    values = list(names.values()) + containers(names)
    names[f"name{which % 8}"] = values[what % len(values)]


def delete_a_name(names, which, *_):
    if len(names) > 1:
        del names[sorted(names)[which % len(names)]]


def put_something_into_another(names, which, what, where):
    holders, values = containers(names), list(names.values())
    if holders:
        connect(holders[which % len(holders)], where % 4, values[what % len(values)])


def empty_one(names, which, *_):
    holders = containers(names)
    if holders:
        holder = holders[which % len(holders)]
        (vars(holder) if isinstance(holder, Node) else holder).clear()


def write_into_an_array(names, which, what, where):
    arrays = [array for array in names.values() if isinstance(array, np.ndarray) and array.size]
    if arrays:
        array = arrays[which % len(arrays)]
        array.flat[where % array.size] = what % 200


def show_a_part(names, which, what, _):
    arrays = [array for array in names.values() if isinstance(array, np.ndarray) and array.ndim]
    if arrays:
        names[f"name{what % 8}"] = arrays[which % len(arrays)][what % 2 :]


def make_something_new(names, which, what, _):
    made = [[what], {what: str(what)}, np.arange(what % 50), float(what), str(what), (what, [what])]
    names[f"name{which % 8}"] = made[what % len(made)]


EDITS = {
    function.__name__: function
    for function in (
        name_something,
        delete_a_name,
        put_something_into_another,
        empty_one,
        write_into_an_array,
        show_a_part,
        make_something_new,
    )
}


class KilledError(BaseException):
    """In the place of SIGKILL."""


@settings(max_examples=examples(60), deadline=None)
@given(graphs(), st.lists(st.tuples(edits(), st.integers(0, 12)), min_size=1, max_size=5))
def test_after_any_edits_and_kills_the_last_whole_save_comes_back(names, cells):
    """Each cell edits the names and is saved; some saves are killed after some writes, and the process with it."""
    saver = Saver()
    saver.save(names, cell=None)
    stands = Roundtrip(names).namespace
    for cell, dies_after in cells:
        for edit, *numbers in cell:
            EDITS[edit](names, *numbers)
        if dies_after and killed(saver, names, dies_after):
            descriptors = [os.dup(fd) for fd in saver.descriptors()]
            saver.close()
            saver, names = Saver(), {}
            assert not saver.restore(descriptors, names).missing
            for descriptor in descriptors:
                os.close(descriptor)
        else:
            saver.save(names, cell=None)
            stands = Roundtrip(names).namespace
        again = {}
        assert not restore(saver.descriptors(), again).missing
        pairs = {}
        same({name: stands[name] for name in sorted(stands)}, {name: again[name] for name in sorted(again)}, pairs)
        arrays = [pair for pair in pairs.values() if isinstance(pair[0], np.ndarray) and pair[0].dtype != object]
        for one, one_after in arrays:
            for other, other_after in arrays:
                assert np.shares_memory(one, other) == np.shares_memory(one_after, other_after)
    saver.close()


def killed(saver, names, dies_after):
    """Whether a save wrote so often that it was killed; one that commits before counts as whole."""
    left = dies_after

    def dying(write):
        def maybe(*args):
            nonlocal left
            left -= 1
            if not left:
                raise KilledError
            write(*args)

        return maybe

    with pytest.MonkeyPatch.context() as patch:
        for owner, way in ((arena, "_pwrite"), (Window, "write")):
            patch.setattr(owner, way, dying(getattr(owner, way)))
        try:
            saver.save(names, cell=None)
        except KilledError:
            return True
    return False
