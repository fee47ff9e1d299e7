"""What a GPU process knows of itself that its driver cannot freeze; for managed memory see `CudaContract`."""

from __future__ import annotations

import sys
import types
from multiprocessing.reduction import ForkingPickler
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from nls_jupyter.gpu_process.freezable import NCCL, Freezable

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def freezable() -> Iterator[Freezable]:
    looks = Freezable()
    yield looks
    looks.remove()


def stands_in(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> Any:
    module = types.ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.mark.parametrize("name", ["ipcGetMemHandle", "ipcOpenMemHandle"])
def test_who_has_a_handle_made_or_opened_by_cupy_shares_memory(
    name: str, freezable: Freezable, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = SimpleNamespace(
        ipcGetMemHandle=lambda pointer: pointer + 1, ipcOpenMemHandle=lambda handle, flags=1: handle
    )
    stands_in(monkeypatch, "cupy", cuda=SimpleNamespace(runtime=runtime))
    freezable.install()
    assert freezable.why_not() is None
    getattr(runtime, name)(7)
    assert freezable.why_not() == "it shares memory of the GPU with another process (CuPy)"


def test_a_handle_that_cannot_be_made_shares_nothing(freezable: Freezable, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(pointer: int) -> None:
        raise ValueError(pointer)

    runtime = SimpleNamespace(ipcGetMemHandle=fails)
    stands_in(monkeypatch, "cupy", cuda=SimpleNamespace(runtime=runtime))
    freezable.install()
    with pytest.raises(ValueError, match="7"):
        runtime.ipcGetMemHandle(7)
    assert freezable.why_not() is None


def test_numbas_own_context_has_what_is_followed_and_says_when_a_handle_is_made(freezable: Freezable) -> None:
    driver = pytest.importorskip("numba.cuda.cudadrv.driver")
    before = driver.Context.get_ipc_handle, driver.Context.open_ipc_handle
    try:
        freezable.install()
        manager = SimpleNamespace(get_ipc_handle=lambda memory: memory)
        context = SimpleNamespace(memory_manager=manager, device=SimpleNamespace(uuid=""))
        assert driver.Context.get_ipc_handle(context, "memory") == "memory"
        assert freezable.why_not() == "it shares memory of the GPU with another process (Numba)"
    finally:
        driver.Context.get_ipc_handle, driver.Context.open_ipc_handle = before


def shared(kind: str | None) -> Any:
    """A weak reference as PyTorch keeps it: to a storage on such a device, or to one that is gone."""
    return SimpleNamespace(cdata=None if kind is None else SimpleNamespace(device=SimpleNamespace(type=kind)))


@pytest.mark.parametrize(("kinds", "shares"), [([], False), (["cpu"], False), ([None], False), (["cpu", "cuda"], True)])
def test_a_tensor_of_the_gpu_that_went_to_another_process_or_came_from_one_is_shared_while_it_lives(
    kinds: list[str | None], shares: bool, freezable: Freezable, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands_in(monkeypatch, "torch", UntypedStorage=SimpleNamespace(_new_with_weak_ptr=lambda cdata: cdata))
    cache = {str(number): shared(kind) for number, kind in enumerate(kinds)}
    stands_in(monkeypatch, "torch.multiprocessing.reductions", shared_cache=cache)
    assert (freezable.why_not() == "it shares memory of the GPU with another process (PyTorch)") == shares


def test_the_installed_pytorch_keeps_what_it_shares_where_it_is_looked_for(freezable: Freezable) -> None:
    torch = pytest.importorskip("torch")
    reductions = pytest.importorskip("torch.multiprocessing.reductions")
    reductions.init_reductions()
    tensor = torch.ones(8)
    ForkingPickler.dumps(tensor)
    assert len(reductions.shared_cache) >= 1
    assert freezable.why_not() is None


@pytest.mark.parametrize(("backend", "joined"), [("gloo", False), ("nccl", True), ("cpu:gloo,cuda:nccl", True)])
def test_who_has_joined_others_by_nccl_says_so(
    backend: str, joined: bool, freezable: Freezable, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = {"is_available": lambda: True, "is_initialized": lambda: True}
    stands_in(monkeypatch, "torch.distributed", get_backend=lambda: backend, **begun)
    assert (freezable.why_not() == NCCL) == joined
