"""`from nls_jupyter import xp`: which array library it is, and that the stand-in has CuPy's manners."""

from __future__ import annotations

import copy
import pickle
import sys
import threading

import numpy as np
import pytest

from gpu_simulation import CONTEXT, GIB, simulated_gpus
from nls_jupyter import xp
from nls_scheduler.drivers import simulated_memory
from nls_scheduler.drivers.simulated import SimulatedGpu
from waiting import wait_until


@pytest.fixture
def simulation(tmp_path, monkeypatch):
    with simulated_gpus(tmp_path, monkeypatch) as driver:
        yield driver


@pytest.fixture
def no_gpu(monkeypatch):
    for name in ("NLS_SIMULATION", "NLS_GPU_PROCESS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def used_bytes():
    return xp.get_default_memory_pool().used_bytes()


class TestWhichLibrary:
    @pytest.mark.usefixtures("no_gpu")
    def test_in_the_kernel_it_says_how_to_reach_a_gpu(self):
        with pytest.raises(RuntimeError, match="start the cell with %%gpu"):
            xp.zeros(3)
        assert dir(xp) == []

    def test_a_mask_of_somebody_elses_makes_no_gpu_process(self, no_gpu):
        no_gpu.setenv("CUDA_VISIBLE_DEVICES", "0")
        with pytest.raises(RuntimeError, match="%%gpu"):
            xp.zeros(3)

    @pytest.mark.parametrize(
        "environment", [{"NLS_GPU_PROCESS": "1"}, {"CUDA_VISIBLE_DEVICES": "GPU-1"}, {"CUDA_VISIBLE_DEVICES": "MIG-1"}]
    )
    def test_in_a_gpu_process_it_is_cupy_and_without_cupy_it_names_the_extra(self, no_gpu, environment):
        for name, value in environment.items():
            no_gpu.setenv(name, value)
        no_gpu.setitem(sys.modules, "cupy", None)
        with pytest.raises(ImportError, match=r"nls-jupyter\[cuda12\].*nls-jupyter\[cuda13\]"):
            xp.zeros(3)
        no_gpu.setitem(sys.modules, "cupy", pytest)
        assert xp.fixture is pytest.fixture

    @pytest.mark.usefixtures("simulation")
    def test_on_a_simulated_gpu_it_is_the_stand_in(self):
        assert isinstance(xp.zeros(3), xp.ndarray)
        assert "zeros" in dir(xp)

    @pytest.mark.usefixtures("simulation")
    def test_what_the_stand_in_lacks_is_said_plainly(self):
        for module in (xp, xp.random, xp.random.default_rng()):
            with pytest.raises(AttributeError, match=r"simulated xp.*'fft'|simulated xp's Generator"):
                module.fft  # noqa: B018


class WatchedLock:
    """A lock that knows whether anybody waits for it."""

    def __init__(self):
        self._lock = threading.Lock()
        self.wanted = False

    def acquire(self, blocking=True):
        taken = self._lock.acquire(blocking=False)
        self.wanted |= blocking and not taken
        return taken or (blocking and self._lock.acquire())

    def release(self):
        self._lock.release()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()


@pytest.mark.usefixtures("simulation")
class TestMemory:
    def test_the_cache_has_been_given_back_when_that_is_said(self, simulation, monkeypatch):
        monkeypatch.setenv("NLS_SIMULATED_CACHE", "1")
        lock = WatchedLock()
        monkeypatch.setattr(simulated_memory._this_process, "lock", lock)
        pool = xp.cuda.MemoryPool()
        pool.malloc(GIB)
        trim = threading.Thread(target=pool.free_all_blocks)
        with lock:  # as another thread has it that forks
            trim.start()
            wait_until(lambda: lock.wanted or not trim.is_alive())
            assert trim.is_alive()
        trim.join()
        assert [s.memory_used_bytes for s in simulation.sample().values()] == [CONTEXT, 0]

    def test_a_storage_counts_once_and_until_its_last_view_dies(self):
        array = xp.zeros(GIB // 8)
        views = [array[10:], array.reshape(-1, 1024).T, array.view(xp.int32), xp.ravel(array)]
        assert used_bytes() == GIB
        assert all(view.data.mem is array.data.mem for view in views)
        del array
        assert used_bytes() == GIB
        del views
        assert used_bytes() == 0

    def test_results_count_while_they_live(self):
        array = xp.zeros(1024)
        assert used_bytes() == 8192
        assert (array + 1).sum() == 1024
        assert used_bytes() == 8192
        kept = array * 2
        assert used_bytes() == 2 * 8192
        del kept

    def test_small_allocations_are_rounded_up_as_in_cupys_pool(self):
        kept = xp.zeros(1)
        assert (used_bytes(), kept.nbytes) == (512, 8)

    def test_beyond_the_gpu_is_out_of_memory_where_cupy_says_it(self, simulation):
        kept = xp.zeros(10 * GIB, xp.uint8)
        with pytest.raises(xp.cuda.memory.OutOfMemoryError, match=r"allocating 8 GiB .* others: none"):
            xp.zeros(8 * GIB, xp.uint8)
        assert issubclass(xp.cuda.memory.OutOfMemoryError, MemoryError)
        assert used_bytes() == kept.nbytes
        gpu = simulation.discover()[0].uuid
        assert simulation.sample()[gpu].memory_used_bytes == 10 * GIB + CONTEXT

    def test_a_temporary_that_does_not_fit_is_out_of_memory_before_it_is_computed(self):
        kept = xp.zeros(10 * GIB, xp.uint8)
        with pytest.raises(xp.cuda.memory.OutOfMemoryError):
            kept + 1
        assert list(kept.data.mem.extents()) == []

    def test_the_allowance_of_the_process_holds(self, simulation):
        gpu = SimulatedGpu.from_environment(simulation.environment([simulation.discover()[0].uuid]))
        gpu.set_allowance(2 * GIB)
        with pytest.raises(xp.cuda.memory.OutOfMemoryError, match="allowance of 2 GiB"):
            xp.zeros(2 * GIB, xp.uint8)
        kept = xp.zeros(GIB, xp.uint8)
        gpu.set_allowance(None)
        del kept

    def test_the_pools_limit_holds_and_zero_lifts_it(self):
        pool = xp.get_default_memory_pool()
        pool.set_limit(size=GIB)
        with pytest.raises(xp.cuda.memory.OutOfMemoryError):
            xp.zeros(2 * GIB, xp.uint8)
        pool.set_limit(fraction=0.5)
        assert pool.get_limit() == 8 * GIB
        pool.set_limit(size=0)
        pool.free_all_blocks()
        assert xp.zeros(2 * GIB, xp.uint8).nbytes == pool.total_bytes() == 2 * GIB

    def test_arrays_in_a_cycle_are_collected_before_memory_runs_out(self):
        cycle = [xp.zeros(10 * GIB, xp.uint8)]
        cycle.append(cycle)
        del cycle
        assert xp.zeros(10 * GIB, xp.uint8).size == 10 * GIB

    def test_mem_info_sees_everybody_on_the_gpu(self):
        kept = xp.zeros(GIB, xp.uint8)
        assert xp.cuda.Device().mem_info == (15 * GIB - CONTEXT, 16 * GIB)
        assert xp.cuda.runtime.memGetInfo() == xp.cuda.Device(0).mem_info
        del kept

    def test_each_device_has_its_own_memory(self, simulation):
        with xp.cuda.Device(1):
            there = xp.zeros(GIB, xp.uint8)
            assert used_bytes() == GIB
        assert (used_bytes(), there.device.id) == (0, 1)
        first, second = (gpu.uuid for gpu in simulation.discover())
        assert simulation.sample()[second].memory_used_bytes == GIB + CONTEXT
        assert simulation.sample()[first].memory_used_bytes == 0

    def test_memory_that_nobody_touched_costs_the_host_nothing(self):
        large = xp.zeros(10 * GIB, xp.uint8)
        large[5 * GIB] = 1
        extents = list(large.data.mem.extents())
        assert sum(end - start for start, end in extents) <= 1 << 21
        assert int(large[5 * GIB]) == 1


@pytest.mark.usefixtures("simulation")
class TestCupysManners:
    def test_numpy_does_not_mix_in_unasked(self):
        array, foreign = xp.arange(3), np.arange(3)
        mixtures = [
            lambda: array + foreign,
            lambda: foreign + array,
            lambda: np.asarray(array),
            lambda: xp.sum(foreign),
            lambda: array.__setitem__(slice(None), foreign),
            lambda: array * [1, 2, 3],
        ]
        for mix in mixtures:
            with pytest.raises(TypeError):
                mix()
        with pytest.raises(TypeError, match=r"Please use `\.get\(\)`"):
            np.array(array)

    def test_numpys_functions_stay_on_the_gpu(self):
        array = xp.arange(4)
        assert isinstance(np.add(array, array), xp.ndarray)
        assert isinstance(np.sum(array), xp.ndarray)
        with pytest.raises(TypeError):
            np.add.reduce(array)

    def test_there_and_back(self):
        host = np.arange(6.0, dtype=np.float32).reshape(2, 3)
        array = xp.asarray(host)
        host[0, 0] = 99
        for back in (array.get(), xp.asnumpy(array), array.tolist()):
            assert np.array_equal(back, np.arange(6).reshape(2, 3))
        assert xp.asarray(array) is array
        assert xp.array(array).data.mem is not array.data.mem
        array.set(np.ones((2, 3), np.float32))
        assert float(array.sum()) == array.sum().item() == 6
        with pytest.raises(ValueError, match="set needs"):
            array.set(np.ones(6))

    def test_reductions_give_arrays_without_axes(self):
        array = xp.arange(6).reshape(2, 3)
        for result in (
            array.sum(),
            array.mean(),
            array.max(),
            array.argmin(),
            xp.prod(array),
            array.any(),
            array.all(),
        ):
            assert isinstance(result, xp.ndarray)
            assert result.shape == ()
        assert array.std(axis=0).shape == (3,)
        assert int(array.var(ddof=1) * 2) == 7

    def test_types_promote_as_in_numpy(self):
        small = xp.ones(3, xp.float32)
        assert (1 - small).dtype == (small * 2.5).dtype == xp.sqrt(small).dtype == np.float32
        assert (xp.arange(3) / 2).dtype == np.float64
        assert (small > 0).dtype == np.bool_
        assert (small + np.float64(1)).dtype == np.float64
        assert (small & True if small.dtype == bool else small.astype(bool) & True).dtype == np.bool_

    def test_operators_and_their_mirrors(self):
        array = xp.array([1.0, 2.0, 4.0])
        pairs = [
            (8 / array, [8, 4, 2]),
            (2**array, [2, 4, 16]),
            (array % 3, [1, 2, 1]),
            (7 // array, [7, 3, 1]),
            (-array, [-1, -2, -4]),
            (abs(-array), [1, 2, 4]),
            (array @ array, 21),
            (xp.where(array > 1, array, 0), [0, 2, 4]),
            (xp.maximum(array, 2), [2, 2, 4]),
            (xp.concatenate([array, array])[2:4], [4, 1]),
            (xp.stack([array, array]).T[0], [1, 1]),
        ]
        for result, expected in pairs:
            assert isinstance(result, xp.ndarray)
            assert np.array_equal(result.get(), expected)

    def test_in_place_operators_keep_the_memory(self):
        array = xp.ones(4)
        view, memory = array[1:], array.data.mem
        array += 1
        array *= xp.asarray([1.0, 2.0, 3.0, 4.0])
        assert array.data.mem is memory
        assert view.tolist() == [4, 6, 8]

    def test_indexing_gives_views_or_copies_as_in_numpy(self):
        array = xp.arange(12).reshape(3, 4)
        element, column, chosen, masked = array[1, 2], array[:, 1], array[xp.array([0, 2])], array[array > 5]
        array[...] = 0
        assert (int(element), column.tolist()) == (0, [0, 0, 0])
        assert (chosen.shape, masked.tolist()) == ((2, 4), [6, 7, 8, 9, 10, 11])
        assert [row.shape for row in array] == [(4,)] * 3
        assert array[None, ::-1].shape == (1, 3, 4)
        with pytest.raises(TypeError, match="0-d"):
            iter(element)

    def test_division_by_zero_is_silent_as_on_a_gpu(self):
        assert (xp.ones(1) / 0).tolist() == [float("inf")]
        assert np.isnan(xp.log(xp.asarray(-1.0)).item())

    def test_the_values_print_as_numpys(self):
        array = xp.arange(3)
        assert (repr(array), str(array), f"{array.sum():d}") == ("array([0, 1, 2])", "[0 1 2]", "3")

    def test_copies_are_copies(self):
        array = xp.arange(6).reshape(2, 3)
        for other in (array.copy(), copy.copy(array), copy.deepcopy(array), pickle.loads(pickle.dumps(array))):
            other[...] = 9
            assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert array.astype(xp.int64, copy=False) is array
        assert array.T.copy("F").flags.f_contiguous

    def test_arrays_are_not_hashable_and_objects_not_storable(self):
        with pytest.raises(TypeError, match="unhashable"):
            hash(xp.zeros(1))
        with pytest.raises(ValueError, match="Unsupported dtype"):
            xp.array([object()])

    def test_random_numbers_repeat_with_their_seed(self):
        def draw():
            xp.random.seed(3)
            return xp.concatenate(
                [xp.random.standard_normal(4), xp.random.rand(2), xp.random.randn(2), xp.random.random(2)]
            )

        assert xp.array_equal(draw(), draw())
        generators = [xp.random.default_rng(1), xp.random.default_rng(1)]
        assert generators[0].random(3).tolist() == generators[1].random(3).tolist()
        assert xp.random.random(2, dtype=xp.float32).dtype == np.float32

    def test_creation(self):
        made = [
            xp.full((2, 2), 3.0),
            xp.ones_like(xp.zeros((2, 2))) * 3,
            xp.empty((2, 2)),
            xp.eye(2),
            xp.linspace(0, 3, 4),
        ]
        assert [array.sum().item() for array in made] == [12, 12, 0, 2, 6]
        assert xp.full(2, 1).dtype == np.int64
        assert xp.array([1, 2], ndmin=2).shape == (1, 2)
        assert xp.zeros_like(xp.ones(3, xp.int8)).dtype == np.int8
        assert xp.get_array_module(made[0]).__name__ == "nls_jupyter.simulated_cupy"
        assert xp.get_array_module(np.ones(1)) is np


@pytest.mark.usefixtures("simulation")
class TestDevices:
    def test_devices_are_counted_and_named(self):
        assert xp.cuda.runtime.getDeviceCount() == 2
        assert xp.cuda.runtime.getDeviceProperties(0) == {"name": b"Simulated GPU", "totalGlobalMem": 16 * GIB}
        assert xp.cuda.is_available()
        xp.cuda.Device().synchronize()
        xp.cuda.Stream.null.synchronize()
        assert xp.cuda.Device(1) != xp.cuda.Device()

    def test_a_device_that_is_not_there_is_cudas_error(self, monkeypatch):
        with pytest.raises(xp.cuda.runtime.CUDARuntimeError, match="invalid device ordinal"):
            xp.cuda.Device(2).use()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        with pytest.raises(xp.cuda.runtime.CUDARuntimeError, match="no CUDA-capable device"):
            xp.zeros(1)


def test_other_objects_can_be_pickled_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickle looks through all modules for a function that does not say where it is from."""
    for variable in ("NLS_SIMULATION", "NLS_GPU_PROCESS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    assert xp.__name__ in sys.modules
    assert not hasattr(xp, "zeros")
    with pytest.raises(RuntimeError, match="works in the GPU process"):
        xp.zeros  # noqa: B018 - the access is what raises
