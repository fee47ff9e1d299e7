"""What saved state costs, beside a plain copy, cloudpickle and dill, in one run on one machine.

    python benchmarks/saved_state.py            # prints; NLS_KEEP=1 also writes results/saved_state.json
    python benchmarks/saved_state.py --mib 64 --dicts 20000 --hundreds 2      # does it work? half a minute
    python benchmarks/saved_state.py --only arrays

Ratios are taken after a warm-up, between memory that was touched equally often before: the first touch of memory costs
more than everything else. Cold figures stand beside them. Two kinds of files stand for "a file": one in the page cache
that is written over again and again without ever being waited for, which a power cut or a full cache undoes and which
costs one copy; and one that is on the disk when the call returns (fsync). Both peers use pickle protocol 5.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import dill
import numpy as np
from machine import machine, report

from kernels import Kernel, daemon
from nls_jupyter.saved_state import Saver

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
ARRAY_BYTES = 64 * MIB
ROUNDS = 8


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def best(work: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> float:
    """The fastest of some rounds, after one that does not count."""
    return by_turns({"work": work}, before)["work"]


def by_turns(works: dict[str, Callable[[], Any]], before: Callable[[], Any] = lambda: None) -> dict[str, float]:
    """The fastest round of each, after one that does not count; by turns, so that a busy moment meets all."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS + 1):
        for name, work in works.items():
            before()
            times[name].append(seconds(work))
    return {name: min(taken[1:]) for name, taken in times.items()}


def arrays(mib: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    count = max(mib * MIB // ARRAY_BYTES, 1)
    return {f"array{number}": rng.random(ARRAY_BYTES // 8) for number in range(count)}


class Touched:
    """What any way of saving costs at least: one copy into memory that is there."""

    def __init__(self, names: dict[str, np.ndarray[Any, Any]]) -> None:
        self._copies = [np.array(array) for array in names.values()]

    def copy(self, names: dict[str, np.ndarray[Any, Any]]) -> None:
        for copy, array in zip(self._copies, names.values(), strict=True):
            np.copyto(copy, array)

    def drop(self) -> None:
        self._copies.clear()


def read(names: dict[str, np.ndarray[Any, Any]]) -> None:
    for array in names.values():
        array.view(np.uint64).max()


def change(names: dict[str, np.ndarray[Any, Any]]) -> None:
    for array in names.values():
        array += 1


def measure_arrays(mib: int) -> dict[str, Any]:
    names = arrays(mib)
    with contextlib.closing(Saver()) as saver:
        cold_copy_s = seconds(lambda: [array.copy() for array in names.values()])
        cold_save_s = seconds(lambda: saver.save(names, cell=None))
        touched = Touched(names)
        works = {"save": lambda: saver.save(names, cell=None), "copy": lambda: touched.copy(names)}
        # From the second round on the arena has memory for the old and the new, as the plain copy has for its one.
        changed = by_turns(works, lambda: change(names))
        touched.drop()
        one_s = best(works["save"], lambda: change(dict([next(iter(names.items()))])))
        unchanged = by_turns({"save": works["save"], "read": lambda: read(names)})
        restore_s, fresh_s = measure_restore(saver, names)
    return {
        "bytes": len(names) * ARRAY_BYTES,
        "save_of_changed_s": round(changed["save"], 3),
        "copy_between_touched_memory_s": round(changed["copy"], 3),
        "save_speed_over_copy": round(changed["copy"] / changed["save"], 2),
        "restore_s": round(restore_s, 3),
        "copy_into_new_memory_s": round(fresh_s, 3),
        "restore_speed_over_copy": round(fresh_s / restore_s, 2),
        "save_of_unchanged_s": round(unchanged["save"], 3),
        "one_read_s": round(unchanged["read"], 3),
        "unchanged_over_one_read": round(unchanged["save"] / unchanged["read"], 2),
        "save_of_one_array_changed_s": round(one_s, 3),
        "cold_save_s": round(cold_save_s, 3),
        "cold_copy_s": round(cold_copy_s, 3),
        **measure_others(names, {**changed, "save_of_one_array": one_s, "cold_save": cold_save_s}),
    }


def measure_restore(saver: Saver, names: dict[str, np.ndarray[Any, Any]]) -> tuple[float, float]:
    """A restore, and a plain copy; both into memory that is new to the process, as a new process has it."""
    restored: dict[str, Any] = {}

    def restore() -> None:
        with contextlib.closing(Saver()) as other:
            assert not other.restore(saver.descriptors(), restored).missing

    def fresh() -> None:
        assert len([array.copy() for array in names.values()]) == len(names)

    found = by_turns({"restore": restore, "fresh": fresh}, restored.clear)
    restore()
    assert all(np.array_equal(restored[name], array) for name, array in names.items())
    return found["restore"], found["fresh"]


def measure_others(names: dict[str, Any], ours: dict[str, float]) -> dict[str, Any]:
    """Each peer into a file in the page cache, and onto the disk."""
    figures: dict[str, Any] = {}
    with tempfile.NamedTemporaryFile(dir=Path(__file__).parent) as file:
        for module in (cloudpickle, dill):

            def dump(module: Any = module, *, to_disk: bool = False) -> None:
                file.seek(0)
                module.dump(names, file, protocol=5)
                file.flush()
                if to_disk:
                    os.fsync(file.fileno())

            cold_s = seconds(dump)
            cached_s = best(dump)
            disk_s = best(lambda: dump(to_disk=True))
            figures[module.__name__] = {
                "into_the_page_cache_s": round(cached_s, 3),
                "onto_the_disk_s": round(disk_s, 3),
                "cold_into_the_page_cache_s": round(cold_s, 3),
                "save_speed_over_page_cache": round(cached_s / ours["save"], 1),
                "save_speed_over_disk": round(disk_s / ours["save"], 1),
                "one_plain_copy_over_page_cache": round(cached_s / ours["copy"], 1),
                "save_of_one_array_changed_over_page_cache": round(cached_s / ours["save_of_one_array"], 1),
                "cold_save_speed_over_page_cache": round(cold_s / ours["cold_save"], 1),
            }
    return figures


def measure_small_objects(count: int) -> dict[str, Any]:
    names = {"many": [{"number": n, "text": str(n), "part": n / 3} for n in range(count)]}
    with contextlib.closing(Saver()) as saver:
        saved = by_turns(
            {
                "first": lambda: first_save(names),
                "cloudpickle": lambda: cloudpickle.dump(names, io.BytesIO()),
                "unchanged": lambda: saver.save(names, cell=None),
            }
        )

        def edit() -> None:
            names["many"][count // 2]["number"] += 1

        changed_s = best(lambda: saver.save(names, cell=None), edit)
        restored: dict[str, Any] = {}
        with contextlib.closing(Saver()) as other:
            restore_s = seconds(lambda: other.restore(saver.descriptors(), restored))
        untouched = measure_untouched(saver, names)
    return {
        "dicts": count,
        "first_save_s": round(saved["first"], 3),
        "first_save_over_cloudpickle": round(saved["first"] / saved["cloudpickle"], 2),
        "save_after_one_edit_s": round(changed_s, 3),
        "save_of_unchanged_s": round(saved["unchanged"], 3),
        "save_of_untouched_ms": round(untouched["save"] * 1000, 2),
        "look_behind_a_whole_save_ms": round(untouched["look"] * 1000, 2),
        "cloudpickle_into_memory_s": round(saved["cloudpickle"], 3),
        "restore_s": round(restore_s, 3),
    }


def first_save(names: dict[str, Any]) -> None:
    with contextlib.closing(Saver()) as saver:
        assert not saver.save(names, cell=None).missing


def measure_untouched(saver: Saver, names: dict[str, Any]) -> dict[str, float]:
    """What a save after a cell leaves. The namespace is a notebook's: this file is not, and says `exec` and more."""

    def save(**options: Any) -> int:
        return saver.save(names, cell=None, function_globals=names, **options).left

    found = by_turns(
        {
            "whole": save,
            "look": lambda: saver.look(names, function_globals=names),
            "save": lambda: save(after_cell=True),
        }
    )
    assert save(after_cell=True), saver.touched.why_all
    return found


CELL = """
total = 0
for number in range(150_000):
    total += number * number % 7
results.append(total)
table[number % 100] = total
vector += 1
"""
SETUP = """
import math, collections
import numpy as np
results, table, vector = [], {}, np.zeros(1000)
matrix = np.ones((500, 500))
class Model:
    def __init__(self): self.weights = {str(n): [n] * 10 for n in range(100)}
    def step(self): return len(self.weights)
model = Model()
settings = {"rate": 0.1, "names": [str(n) for n in range(200)]}
def helper(x): return x + 1
def other(x): return helper(x) * 2
"""


SWITCH = """
keeper = get_ipython().magics_manager.registry["GpuMagics"].gpu_of_notebook.supervisor.keeper
keeper.save_soon = {value}
"""


async def measure_small_cells(hundreds: int) -> dict[str, Any]:
    """A hundred small cells that follow each other at once in a real notebook, with and without saves."""
    async with daemon() as environment, Kernel(environment) as kernel:

        async def hundred(switch: str) -> float:
            await kernel.run(SWITCH.format(value=switch))
            began = time.perf_counter()
            for _ in range(100):
                await kernel.run("%%gpu\n" + CELL)
            return time.perf_counter() - began

        await kernel.run("%%gpu\n" + SETUP)
        without, with_saves = [], []
        for _ in range(hundreds):
            without.append(await hundred("lambda *_: None"))
            with_saves.append(await hundred("type(keeper).save_soon.__get__(keeper)"))
        _, told = await kernel.run("%gpu vars")
    plain_s, saved_s = min(without[1:]), min(with_saves[1:])
    assert "Saved after cell" in told, told
    return {
        "cell_ms": round(plain_s * 10, 2),
        "with_saves_ms": round(saved_s * 10, 2),
        "slowdown_percent": round((saved_s / plain_s - 1) * 100, 1),
        **measure_one_save(),
    }


def measure_one_save() -> dict[str, Any]:
    """What the GPU process itself spends on a save after such a cell."""
    cell = compile(CELL, "<cell>", "exec")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SETUP, "<setup>", "exec"), names)
    with contextlib.closing(Saver()) as saver:

        def save() -> None:
            user = {name: value for name, value in names.items() if not name.startswith("__")}
            saver.save(user, cell=None, function_globals=names)

        times = []
        for _ in range(100):
            exec(cell, names)
            times.append(seconds(save))
    return {"one_save_ms": round(statistics.median(times) * 1000, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="of arrays (default %(default)s)")
    parser.add_argument("--dicts", type=int, default=1_000_000, help="small objects (default %(default)s)")
    parser.add_argument(
        "--hundreds", type=int, default=6, help="of small cells; the first does not count (default %(default)s)"
    )
    works: dict[str, Callable[[argparse.Namespace], Any]] = {
        "arrays": lambda options: measure_arrays(options.mib),
        "small_objects": lambda options: measure_small_objects(options.dicts),
        "hundred_small_cells": lambda options: asyncio.run(measure_small_cells(max(options.hundreds, 2))),
    }
    parser.add_argument("--only", action="append", choices=works, help="this part; repeatable")
    options = parser.parse_args()
    report("saved_state", {name: works[name](options) for name in options.only or works}, machine())


if __name__ == "__main__":
    main()
