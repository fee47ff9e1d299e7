"""What saved state costs, beside a plain copy, cloudpickle and dill, in one run on one machine.

    python benchmarks/saved_state.py            # prints; NLS_KEEP=1 also writes results/saved_state.json

Ratios are taken after a warm-up, between memory that was touched equally often before: the first touch of memory costs
more than everything else. Cold figures stand beside them.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import time
from typing import TYPE_CHECKING, Any

import cloudpickle
import dill
import numpy as np
from machine import machine, report

from nls_jupyter.saved_state import Saver

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
ARRAYS_BYTES = int(os.environ.get("NLS_BENCHMARK_MIB", "1024")) * MIB
ROUNDS = 5


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def best(work: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> float:
    """The fastest of some rounds, after one that does not count."""
    times = []
    for _ in range(ROUNDS + 1):
        before()
        times.append(seconds(work))
    return min(times[1:])


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    count = ARRAYS_BYTES // (64 * MIB)
    return {f"array{number}": rng.random(64 * MIB // 8) for number in range(count)}


class MemoryFile:
    """What a saved state would be if it only copied: the same memory file, the same pieces."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("benchmark")

    def copy(self, names: dict[str, np.ndarray[Any, Any]]) -> None:
        position = 0
        for array in names.values():
            content = array.view(np.uint8).data
            for start in range(0, content.nbytes, MIB):
                position += os.pwrite(self.fd, content[start : start + MIB], position)

    def close(self) -> None:
        os.close(self.fd)


def read(names: dict[str, np.ndarray[Any, Any]]) -> None:
    for array in names.values():
        array.view(np.uint64).max()


def change(names: dict[str, np.ndarray[Any, Any]]) -> None:
    for array in names.values():
        array += 1


def measure_arrays() -> dict[str, Any]:
    names = arrays()
    with contextlib.closing(Saver()) as saver, contextlib.closing(MemoryFile()) as plain:
        cold_copy_s = seconds(lambda: plain.copy(names))
        cold_save_s = seconds(lambda: saver.save(names, cell=None))
        # Twice: the arena then has memory for the old and the new, as the plain file has for its one.
        copy_s = best(lambda: plain.copy(names), lambda: change(names))
        save_s = best(lambda: saver.save(names, cell=None), lambda: change(names))
        read_s = best(lambda: read(names))
        unchanged_s = best(lambda: saver.save(names, cell=None))
        restored: dict[str, Any] = {}

        def restore() -> None:
            with contextlib.closing(Saver()) as other:
                assert not other.restore(saver.descriptors(), restored).missing

        # Both sides into memory that is new to the process: what a restore into a new one has.
        fresh_s = best(lambda: [array.copy() for array in names.values()])
        restore_s = best(restore, restored.clear)
        assert all(np.array_equal(restored[name], array) for name, array in names.items())
        restored.clear()
    return {
        "bytes": ARRAYS_BYTES,
        "save_of_changed_s": round(save_s, 3),
        "copy_into_a_memory_file_s": round(copy_s, 3),
        "save_speed_over_copy": round(copy_s / save_s, 2),
        "restore_s": round(restore_s, 3),
        "copy_into_new_memory_s": round(fresh_s, 3),
        "restore_speed_over_copy": round(fresh_s / restore_s, 2),
        "save_of_unchanged_s": round(unchanged_s, 3),
        "one_read_s": round(read_s, 3),
        "unchanged_over_one_read": round(unchanged_s / read_s, 2),
        "cold_save_s": round(cold_save_s, 3),
        "cold_copy_s": round(cold_copy_s, 3),
        **measure_others(names, save_s, cold_save_s),
    }


def measure_others(names: dict[str, Any], save_s: float, cold_save_s: float) -> dict[str, Any]:
    figures = {}
    with tempfile.NamedTemporaryFile() as file:
        for module in (cloudpickle, dill):

            def dump(module: Any = module) -> None:
                file.seek(0)
                module.dump(names, file)
                file.flush()

            cold_s = seconds(dump)
            warm_s = best(dump)
            name = module.__name__
            figures |= {
                f"{name}_to_a_file_s": round(warm_s, 3),
                f"save_speed_over_{name}": round(warm_s / save_s, 1),
                f"{name}_cold_s": round(cold_s, 3),
                f"cold_save_speed_over_{name}": round(cold_s / cold_save_s, 1),
            }
    return figures


def measure_small_objects() -> dict[str, Any]:
    names = {"many": [{"number": n, "text": str(n), "part": n / 3} for n in range(1_000_000)]}
    with contextlib.closing(Saver()) as saver:
        first_s = seconds(lambda: saver.save(names, cell=None))
        unchanged_s = best(lambda: saver.save(names, cell=None))

        def edit() -> None:
            names["many"][500_000]["number"] += 1

        changed_s = best(lambda: saver.save(names, cell=None), edit)
        pickle_s = best(lambda: cloudpickle.dump(names, io.BytesIO()))
        restored: dict[str, Any] = {}
        with contextlib.closing(Saver()) as other:
            restore_s = seconds(lambda: other.restore(saver.descriptors(), restored))
    return {
        "dicts": 1_000_000,
        "first_save_s": round(first_s, 2),
        "save_after_one_edit_s": round(changed_s, 2),
        "save_of_unchanged_s": round(unchanged_s, 2),
        "cloudpickle_into_memory_s": round(pickle_s, 2),
        "restore_s": round(restore_s, 2),
    }


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


def measure_small_cells() -> dict[str, Any]:
    """A hundred cells of some milliseconds each, in a namespace of a notebook's size, with and without saves."""
    cell = compile(CELL, "<cell>", "exec")

    def hundred(save: Callable[[dict[str, Any]], Any]) -> float:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(SETUP, "<setup>", "exec"), names)
        save(names)
        began = time.perf_counter()
        for _ in range(100):
            exec(cell, names)
            save(names)
        return time.perf_counter() - began

    def saving(saver: Saver) -> Callable[[dict[str, Any]], Any]:
        def save(names: dict[str, Any]) -> None:
            user = {name: value for name, value in names.items() if not name.startswith("__")}
            saver.save(user, cell=None, function_globals=names)

        return save

    without, with_saves = [], []
    for _ in range(4):
        without.append(hundred(lambda _: None))
        with contextlib.closing(Saver()) as saver:
            with_saves.append(hundred(saving(saver)))
    plain_s, saved_s = min(without[1:]), min(with_saves[1:])
    return {
        "cell_ms": round(plain_s * 10, 2),
        "save_ms": round((saved_s - plain_s) * 10, 2),
        "slowdown_percent": round((saved_s / plain_s - 1) * 100, 1),
    }


def main() -> None:
    figures = {
        "arrays": measure_arrays(),
        "small_objects": measure_small_objects(),
        "hundred_small_cells": measure_small_cells(),
    }
    report("saved_state", figures, machine())


if __name__ == "__main__":
    main()
