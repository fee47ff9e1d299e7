"""PyTorch within the allowance. A stand-in for its calls: they need CUDA; tests/gpu has the same with the real ones."""

from __future__ import annotations

import contextlib
import sys
import threading
import types

import pytest

from nls_jupyter.between.seams import TORCH_OUT_OF_MEMORY, TORCH_WHEN_READY
from nls_jupyter.gpu_process.allocators import Answer, Asking, Follower, explain_failed_allocations
from nls_jupyter.gpu_process.allocators.torch_fraction import TorchFraction
from nls_scheduler.processes.proc import CONTEXT_VARIABLE

GIB = 2**30
TOTAL = 16 * GIB


class FakeOutOfMemoryError(RuntimeError):
    """As `torch.cuda.OutOfMemoryError`."""


class FakeCuda:
    """As much of `torch.cuda` as is called, with its manners: nothing happens before the initialisation."""

    OutOfMemoryError = FakeOutOfMemoryError

    def __init__(self):
        self.queued, self.initialised, self.current = [], False, 0
        self.reserved, self.cached, self.fractions = {0: 0, 1: 0}, {0: 0, 1: 0}, {}
        self.backend = "native"

    def get_allocator_backend(self):
        return self.backend

    def _lazy_call(self, call):
        call() if self.initialised else self.queued.append(call)

    def init(self):
        self.initialised = True
        for call in self.queued:
            call()

    def device_count(self):
        return 2

    @contextlib.contextmanager
    def device(self, device):
        before, self.current = self.current, device
        yield
        self.current = before

    def memory_reserved(self, device):
        assert self.initialised
        if self.backend == "pluggable":  # PyTorch 2.13, torch/csrc/cuda/CUDAPluggableAllocator.cpp
            raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")
        return self.reserved[device]

    def mem_get_info(self, device):
        assert self.initialised
        return TOTAL - self.reserved[device], TOTAL

    def set_per_process_memory_fraction(self, fraction, device):
        assert 0 <= fraction <= 1
        self.current = device  # as PyTorch's allocator does
        self.fractions[device] = fraction

    def empty_cache(self):
        for device, cached in self.cached.items():
            self.reserved[device] -= cached
            self.cached[device] = 0


class FakeTorch:
    def __init__(self):
        self.cuda = FakeCuda()
        self.observers = []
        self._C = types.SimpleNamespace(_cuda_attach_out_of_memory_observer=self.observers.append)

    def fails(self, size):
        """An allocation fails: the observers are told, then it is raised."""
        for observer in self.observers:
            observer(self.cuda.current, size, TOTAL, 0)
        raise FakeOutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")


class Daemon:
    def __init__(self):
        self.questions, self.answer = [], Answer(granted=False, reason="alice holds 9 GiB")
        self.asking = Asking(self.hear)

    def hear(self, question):
        self.questions.append(question)
        self.asking.answer(question["number"], self.answer)


@pytest.fixture
def torch():
    return FakeTorch()


@pytest.fixture
def daemon(monkeypatch):
    monkeypatch.setenv(CONTEXT_VARIABLE, str(GIB))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    return Daemon()


@pytest.fixture
def follower(daemon, torch):
    follower = Follower(daemon.asking)
    follower.allowance_bytes = 5 * GIB
    follower._add(TorchFraction(torch, follower))
    return follower


def test_nothing_of_cuda_is_touched_before_the_user_does(follower, torch):
    follower.follow(9 * GIB)
    assert follower.trim() == 0
    assert torch.cuda.fractions == {}
    assert not torch.cuda.initialised


def test_the_fraction_follows_on_every_device_from_the_first_use_on(follower, torch):
    torch.cuda.init()
    assert torch.cuda.fractions == {0: 4 / 16, 1: 4 / 16}
    follower.follow(9 * GIB)
    assert torch.cuda.fractions == {0: 8 / 16, 1: 8 / 16}
    follower.follow(None)
    assert torch.cuda.fractions == {0: 1.0, 1: 1.0}
    assert torch.cuda.current == 0, "the user's current device stays"


def test_what_other_libraries_hold_is_taken_off(follower, torch):
    class Other:
        def held_bytes(self, device):
            return 3 * GIB if device == 0 else 0

    torch.cuda.init()
    other = Other()
    follower.libraries.append(other)
    follower.grew(other)
    assert torch.cuda.fractions == {0: 1 / 16, 1: 4 / 16}


def test_a_smaller_allowance_takes_caches_at_once(follower, torch):
    torch.cuda.init()
    torch.cuda.reserved[0], torch.cuda.cached[0] = 4 * GIB, 2 * GIB
    follower.follow(4 * GIB)
    assert torch.cuda.reserved[0] == 2 * GIB


class FakeGraph:
    """As `torch.cuda.CUDAGraph`; CUDA ends the capture of one if memory is freed meanwhile."""

    fails = False

    def capture_begin(self, pool=None):
        if self.fails:
            raise RuntimeError(f"it cannot be captured into {pool}")

    def capture_end(self):
        if self.fails:
            raise RuntimeError("it was not captured")


@pytest.fixture
def captures(daemon, torch, monkeypatch):
    """A follower of a PyTorch with 2 GiB in its cache, and its class of graphs."""
    kind = type("Graph", (FakeGraph,), {})
    monkeypatch.setattr(torch.cuda, "CUDAGraph", kind, raising=False)
    follower = Follower(daemon.asking)
    follower._add_torch(torch)
    torch.cuda.init()
    torch.cuda.reserved[0], torch.cuda.cached[0] = 4 * GIB, 2 * GIB
    return follower, kind


@pytest.mark.parametrize("fails", [False, True])
def test_caches_are_given_back_after_the_capture_of_a_graph_and_not_in_it(captures, torch, fails):
    follower, kind = captures
    one, other = kind(), kind()
    one.capture_begin()
    other.capture_begin(pool=1)
    trimming = threading.Thread(target=follower.trim)  # another thread, whose stream captures nothing
    trimming.start()
    trimming.join()
    one.capture_end()
    assert follower.trim() == 0
    assert torch.cuda.reserved[0] == 4 * GIB
    kind.fails = fails
    with contextlib.suppress(RuntimeError):
        other.capture_end()
    assert torch.cuda.reserved[0] == 2 * GIB


def test_a_capture_that_does_not_begin_keeps_no_cache(captures, torch):
    follower, kind = captures
    kind.fails = True
    with pytest.raises(RuntimeError, match="cannot be captured"):
        kind().capture_begin()
    assert torch.cuda.reserved[0] == 4 * GIB, "nobody asked"
    assert follower.trim() == 2 * GIB


def test_the_real_libraries_have_what_begins_and_ends_a_capture():
    real = pytest.importorskip("torch")
    assert callable(real.cuda.CUDAGraph.capture_begin)
    assert callable(real.cuda.CUDAGraph.capture_end)


def test_a_failed_allocation_asks_at_once_and_its_error_says_what_was_answered(follower, torch, daemon):
    torch.cuda.init()
    torch.cuda.reserved[0] = 2 * GIB
    shown = []
    shell = types.SimpleNamespace(showtraceback=lambda exc_tuple=None: shown.append(exc_tuple))
    explain_failed_allocations(shell, follower)
    with pytest.raises(FakeOutOfMemoryError) as failure:
        torch.fails(3 * GIB)
    shell.showtraceback((type(failure.value), failure.value, None))
    assert daemon.questions == [{"number": 1, "gpu": "GPU-a", "bytes": 3 * GIB, "held_bytes": 3 * GIB}]
    told = str(failure.value)
    assert told.startswith("CUDA out of memory.")
    assert told.endswith("[scheduler] Alice holds 9 GiB.")
    assert len(shown) == 1


def test_room_that_was_made_is_named_for_the_next_try(follower, torch, daemon):
    torch.cuda.init()
    daemon.answer = Answer(granted=True, reason="4 GiB are free")
    with pytest.raises(FakeOutOfMemoryError) as failure:
        torch.fails(3 * GIB)
    follower.libraries[0].explain(failure.value)
    assert str(failure.value).endswith("[scheduler] 4 GiB are free by now: run the cell again.")


def test_another_error_after_one_that_was_caught_is_left_as_it_is(follower, torch):
    torch.cuda.init()
    with contextlib.suppress(FakeOutOfMemoryError):
        torch.fails(3 * GIB)
    other = ValueError("x")
    follower.libraries[0].explain(other)
    assert str(other) == "x"


def test_pytorch_without_the_observer_still_follows_and_its_user_is_told(daemon, torch):
    torch._C = types.SimpleNamespace()
    told = []
    follower = Follower(daemon.asking, told.append)
    follower.allowance_bytes = 5 * GIB
    follower._add(TorchFraction(torch, follower))
    torch.cuda.init()
    assert torch.cuda.fractions[0] == 4 / 16
    assert told == [TORCH_OUT_OF_MEMORY.told()]


def test_an_allocator_that_takes_no_observer_still_follows_and_its_user_is_told_what_does_not_work(daemon, torch):
    """As with `PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync`."""

    def refuse(_):
        raise RuntimeError("cudaMallocAsync does not yet support attachOutOfMemoryObserver. If you need it, please")

    torch._C = types.SimpleNamespace(_cuda_attach_out_of_memory_observer=refuse)
    told = []
    follower = Follower(daemon.asking, told.append)
    follower.allowance_bytes = 5 * GIB
    follower._add(TorchFraction(torch, follower))
    torch.cuda.init()
    assert torch.cuda.fractions[0] == 4 / 16
    (sentence,) = told
    assert sentence.startswith("The allocator that PyTorch uses here tells nobody where it runs out of memory: ")


@pytest.fixture
def told_after_import(daemon, torch, monkeypatch):
    """What is told of it when it is imported; more may come later."""
    for name, module in (("torch", torch), ("torch.cuda", torch.cuda)):
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("cupy", "nls_jupyter.simulated_cupy"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def told_after_import():
        told = []
        follower = Follower(daemon.asking, told.append)
        follower.install()
        follower.remove()
        return told, follower.libraries

    return told_after_import


def test_pytorch_without_the_call_at_its_first_use_is_not_held_and_its_user_is_told(told_after_import, monkeypatch):
    monkeypatch.delattr(FakeCuda, "_lazy_call")
    assert told_after_import() == ([TORCH_WHEN_READY.told()], [])


def test_what_fails_in_the_first_use_of_pytorch_is_told_and_does_not_fail_it(told_after_import, torch, monkeypatch):
    told, libraries = told_after_import()
    assert told == []
    assert len(libraries) == 1
    monkeypatch.setattr(FakeCuda, "mem_get_info", lambda *_: (0, 0))
    libraries[0]._follower.allowance_bytes = GIB
    torch.cuda.init()
    (sentence,) = told
    assert sentence.startswith("torch is not held to this notebook's share of the GPU, and the scheduler is not asked ")
    assert sentence.endswith(" where its memory is short: ZeroDivisionError: division by zero.")


def test_the_real_pytorch_has_the_calls_that_need_no_gpu():
    real = pytest.importorskip("torch")
    follower = Follower(Asking(lambda question: None))
    follower._add(TorchFraction(real, follower))
    follower.follow(GIB)
    assert follower.trim() == 0
    for name in (
        "_lazy_call",
        "get_allocator_backend",
        "set_per_process_memory_fraction",
        "memory_reserved",
        "mem_get_info",
        "empty_cache",
    ):
        assert callable(getattr(real.cuda, name))
    assert issubclass(real.cuda.OutOfMemoryError, RuntimeError)
    del real.cuda._queued_calls[-1]


def test_an_allocator_of_the_users_own_is_told_and_costs_no_other_library_its_allocations(daemon, torch):
    """`torch.cuda.memory.change_current_allocator(rmm_torch_allocator)`, before the first use of CUDA."""
    told = []
    follower = Follower(daemon.asking, told.append)
    follower._add(TorchFraction(torch, follower))
    torch.cuda.backend = "pluggable"
    torch.cuda.init()
    follower.follow(5 * GIB)
    assert (follower.left_bytes(None, 0), follower.held_bytes(0), follower.trim()) == (4 * GIB, GIB, 0)
    assert (torch.observers, torch.cuda.fractions) == ([], {})
    assert len(told) == 1
    assert told[0].startswith("PyTorch allocates by what torch.cuda.memory.change_current_allocator was given: ")
