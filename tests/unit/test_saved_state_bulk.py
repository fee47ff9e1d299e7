"""Big containers are looked at all at once: what changes in them is seen, and so is who else has a part of them."""

from __future__ import annotations

import contextlib
import gc
import math
import random
import sys
from types import SimpleNamespace

import pytest

from nls_jupyter.saved_state import Saver, SaveStoppedError, bulk, graph
from nls_jupyter.saved_state.bulk import Bulk, words_of
from nls_jupyter.saved_state.room import MachineRoom
from saved_state_roundtrip import Roundtrip, restore

COUNT = graph._MANY + 1
ROWS = {
    "dicts": lambda: [{"number": n, "text": str(n), "part": n / 3} for n in range(COUNT)],
    "dicts, by name": lambda: {str(n): {"number": n, 3: None} for n in range(COUNT)},
    "lists": lambda: [[n, str(n)] for n in range(COUNT)],
    "tuples": lambda: tuple((n, -n) for n in range(COUNT)),
    "numbers": lambda: [n / 7 for n in range(COUNT)],
    "texts": lambda: {n: str(n) for n in range(COUNT)},
}
OTHERS = {
    "rows in rows": lambda: [[[n]] for n in range(COUNT)],
    "one row again and again": lambda: [[1]] * COUNT,
    "bytearrays": lambda: [{"b": bytearray(b"x")} for n in range(COUNT)],
    "instances": lambda: [{"i": SimpleNamespace(n=n)} for n in range(COUNT)],
    "rows of two kinds": lambda: [[n] if n % 2 else {n: n} for n in range(COUNT)],
    "tuples as keys": lambda: {(n, n): {} for n in range(COUNT)},
}


def look(container):
    return Bulk(int).look_at(container)


def words_in(container):
    return words_of(container, look(container).size_bytes)


@pytest.mark.parametrize("make", ROWS.values(), ids=ROWS)
def test_plain_rows_are_told_by_what_they_hold(make):
    assert look(make()) == look(make()) is not None


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_all_others_are_left_to_the_walk_and_come_back(make):
    rows = make()
    assert look(rows) is None
    assert str(Roundtrip({"rows": rows})["rows"]) == str(rows)


@pytest.mark.parametrize("other", [1, 1.0, True, "1", b"1", None, -0.0, math.nan, 10**30, "\ud800"])
def test_values_that_look_alike_are_told_apart(other):
    for value in (0, 1, 1.5, False, "", b"", 0.0):
        different = repr(value) != repr(other) or type(value) is not type(other)
        assert (look([{"v": value}]) != look([{"v": other}])) == different


def test_what_changes_in_a_row_is_saved_and_what_does_not_is_not_pickled_again(monkeypatch):
    rows = ROWS["dicts"]()
    with contextlib.closing(Saver()) as saver:
        saver.save({"rows": rows}, cell=None)
        saver.save({"rows": rows}, cell=None)
        part = saver._last[0]
        saver.save({"rows": rows}, cell=None)
        assert saver._last[0].encoded is part.encoded
        rows[7]["number"] = "seven"
        saver.save({"rows": rows}, cell=None)
        found = {}
        restore(saver.descriptors(), found)
        assert found["rows"] == rows


def test_a_row_that_another_name_has_stays_shared_also_if_that_comes_later():
    rows = ROWS["dicts"]()
    names = {"rows": rows}
    with contextlib.closing(Saver()) as saver:
        saver.save(names, cell=None)
        names["row"] = rows[5]
        saver.save(names, cell=None)
        found = {}
        restore(saver.descriptors(), found)
        assert found["row"] is found["rows"][5]
        rows[9] = rows[8]
        del names["row"]
        saver.save(names, cell=None)
        restore(saver.descriptors(), found)
        assert found["rows"][9] is found["rows"][8]


def test_a_row_that_becomes_its_equal_twin_is_not_taken_for_the_same():
    rows = [{"n": 1} for _ in range(COUNT)]
    with contextlib.closing(Saver()) as saver:
        saver.save({"rows": rows}, cell=None)
        rows[1] = rows[0]
        saver.save({"rows": rows}, cell=None)
        found = {}
        restore(saver.descriptors(), found)
        assert found["rows"][1] is found["rows"][0]
        rows[1] = {"n": 1}
        saver.save({"rows": rows}, cell=None)
        restore(saver.descriptors(), found)
        assert found["rows"][1] is not found["rows"][0]


def test_nobodys_code_runs_in_a_look():
    class Loud:
        def __reduce__(self):
            raise AssertionError

    rows = ROWS["dicts"]()
    assert look(rows) is not None
    rows[3]["number"] = Loud()
    assert look(rows) is None


def test_a_look_can_be_stopped():
    def stop():
        raise SaveStoppedError("stop")

    with pytest.raises(SaveStoppedError):
        Bulk(stop).look_at(ROWS["dicts"]())


TOWNS = [f"town {n}" for n in range(20)]
SHARING = {
    "in dicts": lambda town: [{"name": f"name {n}", "town": town()} for n in range(COUNT)],
    "in dicts, by name": lambda town: {f"{n}.": {"name": f"name {n}", b"town": town()} for n in range(COUNT)},
    "in lists": lambda town: [[f"name {n}", town(), n] for n in range(COUNT)],
    "in tuples": lambda town: tuple((f"name {n}".encode(), town()) for n in range(COUNT)),
    "alone": lambda town: [town() for _ in range(COUNT)],
    "as values": lambda town: {n: town() for n in range(COUNT)},
}


def texts_in(rows):
    """All texts, also those that are keys, as often as they are there; single characters are one object anyway."""
    outer = [*rows, *rows.values()] if type(rows) is dict else rows
    inner = (
        part
        for row in outer
        for part in ((*row, *row.values()) if type(row) is dict else row if type(row) in {list, tuple} else (row,))
    )
    return [part for part in inner if type(part) in {str, bytes}]


@pytest.mark.parametrize("make", SHARING.values(), ids=SHARING)
def test_what_rows_share_they_share_again_and_the_rest_is_written_once(make):
    drawn = random.Random(4)
    rows = make(lambda: drawn.choice(TOWNS))
    found = Roundtrip({"rows": rows})["rows"]
    assert found == rows
    assert repr(found) == repr(rows)
    assert len(set(map(id, texts_in(found)))) == len(set(map(id, texts_in(rows))))
    assert sorted(map(str, words_in(found))) == sorted(map(str, words_in(rows)))


@pytest.mark.parametrize("make", SHARING.values(), ids=SHARING)
def test_shared_texts_that_a_sample_cannot_tell_are_all_looked_for(make):
    elsewhere = [f"town number {n}" for n in range(COUNT)]
    left = iter(elsewhere)
    rows = make(lambda: next(left))
    assert words_in(rows) is None
    again = iter([*elsewhere[: COUNT // 2]] * 3)
    rows = make(lambda: next(again))
    found = Roundtrip({"rows": rows})["rows"]
    assert found == rows
    assert len(set(map(id, texts_in(found)))) == len(set(map(id, texts_in(rows))))


def test_one_word_and_none():
    towns = ["the only one"] * COUNT
    assert words_in(towns) == ["the only one"]
    assert Roundtrip({"towns": towns})["towns"] == towns
    names = [f"name {n}" for n in range(COUNT)]
    assert words_in(names) == []
    assert Roundtrip({"names": names})["names"] == names


def test_rows_of_two_names_are_one_again_and_what_else_leads_to_them_too():
    rows = ROWS["dicts"]()
    held = SimpleNamespace(rows=ROWS["lists"]())
    found = Roundtrip({"rows": rows, "again": rows, "held": held, "inside": held.rows, "box": {1: rows}})
    assert found["rows"] is found["again"] is found["box"][1]
    assert found["inside"] is found["held"].rows
    assert found["rows"] == rows


@pytest.mark.parametrize("now", [[], {}, [{}, *[{1: 1}] * COUNT, 5], [[[n]] for n in range(COUNT)]])
def test_a_container_that_another_thread_has_changed_since_has_no_words(now):
    assert words_of(now, 10**6) is None


def test_a_container_that_shrinks_meanwhile_has_no_words(monkeypatch):
    def shrinks(_, population, count):
        raise ValueError("Sample larger than population")

    monkeypatch.setattr(bulk.random.Random, "sample", shrinks)
    assert words_of([1] * COUNT, COUNT) is None


def same(rows):
    found = Roundtrip({"rows": rows})["rows"]
    assert found == rows
    return found


@pytest.mark.parametrize("character", ["\u25a1", b"x", "\xff", "x", "\U0001f600", "\ud800"])
def test_single_characters_stay_as_many_as_they_were(character):
    found = same([[character] * 5 for _ in range(COUNT)])
    assert len({id(part) for row in found for part in row}) == 1
    found = same([{character: n} for n in range(COUNT)])
    assert len({id(part) for row in found for part in row}) == 1


def test_a_few_large_texts_are_not_written_again_and_again():
    documents = [f"document {n}" * 100 for n in range(COUNT)]
    rows = [{**{f"column {k}": n * k % 7 for k in range(50)}, "text": documents[n // 5]} for n in range(5 * COUNT)]
    assert words_in(rows) is None
    assert len({id(row["text"]) for row in same(rows)}) == len({id(row["text"]) for row in rows})


def test_large_texts_that_no_row_of_the_sample_has_are_not_written_again_and_again():
    count, text = 20 * COUNT, "x" * 100_000
    asked = {*random.Random(0).sample(range(count), bulk._ASKED)}
    rows = [{"number": n, "text": None} for n in range(count)]
    for number in [n for n in range(count) if n not in asked][::400]:
        rows[number]["text"] = text
    with contextlib.closing(Saver(MachineRoom(memory_limit_bytes=8 << 20))) as saver:
        assert not saver.save({"rows": rows}, cell=None).missing


def test_tuples_that_rows_share_are_not_multiplied():
    labels = tuple(f"label {n}" for n in range(50))
    gc.collect()  # it looks no more into a tuple of texts from now on, nor into dicts of those
    rows = [{"number": n, "labels": labels} for n in range(COUNT)]
    assert not any(map(gc.is_tracked, rows)) or sys.version_info >= (3, 14)  # which looks into every dict
    assert len({id(row["labels"]) for row in same(rows)}) == 1


def nested(depth):
    found = [1]
    for _ in range(depth):
        found = [found, found]
    return found


def deep_tuple(depth):
    found = (1,)
    for _ in range(depth):
        found = (found, found)
        gc.collect(0)  # which stops tracking a tuple of what is not tracked
    return found


SHARED_INSIDE = {
    "one in all rows": lambda: (lambda big: [(n, big) for n in range(COUNT)])(list(range(100_000))),
    "in one row, twice and twice and twice": lambda: [[n] for n in range(COUNT)] + [[nested(60)]],
    "in one dict, as tuples": lambda: [{"n": n} for n in range(COUNT)] + [{"n": deep_tuple(60)}],
}


@pytest.mark.parametrize("make", SHARED_INSIDE.values(), ids=SHARED_INSIDE)
def test_what_rows_share_inside_is_not_written_out_to_look_at_it(make, monkeypatch):
    monkeypatch.setattr(bulk, "resident_bytes", lambda: 1 << 24)
    rows = make()
    assert look(rows) is None
    assert Roundtrip({"rows": rows}).manifest.memory_bytes < 4 << 20


def test_one_text_in_all_rows_is_not_hashed_again_and_again(monkeypatch):
    monkeypatch.setattr(bulk, "resident_bytes", lambda: 1 << 24)
    text = "x" * 1_000_000
    rows = [{"number": n, "text": text} for n in range(COUNT)]
    assert look(rows) is None
    assert Roundtrip({"rows": rows}).manifest.memory_bytes < 4 << 20


def test_a_large_text_that_names_share_is_saved_once_however_much_is_beside_it():
    text = "x" * 1_000_000
    names = {f"name {n}": [*([k] for k in range(COUNT)), text, [[[n]]]] for n in range(4)}
    found = Roundtrip(names)
    assert found.manifest.memory_bytes < 2_000_000
    assert len({id(found[name][COUNT]) for name in names}) == 1


def test_what_another_name_changes_while_it_is_pickled_is_pickled_as_it_is_then():
    rows = [[n] for n in range(COUNT)]

    class Shares:
        def __reduce__(self):
            rows[1] = rows[0]
            rows[3].append(rows[3])
            return int, ()

    names = Roundtrip({"other": Shares(), "rows": rows})
    assert names["rows"][1] is names["rows"][0]
    assert names["rows"][3][1] is names["rows"][3]


def test_rows_that_are_read_in_come_back_untracked_by_the_collector_as_they_were():
    rows = ROWS["dicts"]()
    are_tracked = any(map(gc.is_tracked, rows))
    assert any(map(gc.is_tracked, Roundtrip({"rows": rows})["rows"])) == are_tracked == (sys.version_info >= (3, 14))


def test_rows_without_room_are_named_and_the_other_names_come_back():
    rows = [{"text": str(n) * 400} for n in range(COUNT)]
    with contextlib.closing(Saver(MachineRoom(memory_limit_bytes=1 << 20))) as saver:
        manifest = saver.save({"rows": rows, "number": 5}, cell=None)
        assert [missing.name for missing in manifest.missing] == ["rows"]
        found = {}
        restore(saver.descriptors(), found)
        assert found == {"number": 5}
