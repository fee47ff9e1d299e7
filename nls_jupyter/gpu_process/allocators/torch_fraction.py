"""PyTorch's caching allocator, held to the allowance by its memory fraction.

PyTorch has no way to try an allocation again from Python. So where one fails, the daemon is asked from PyTorch's own
out-of-memory observer, which runs without the allocator's lock, and what it says is put into the error that follows:
the next try, in the next cell, finds the room that was made.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import TORCH_OUT_OF_MEMORY, TORCH_WHEN_READY
from nls_jupyter.gpu_process.allocators.library import LacksError, explained

if TYPE_CHECKING:
    from nls_jupyter.gpu_process.allocators.asking import Answer
    from nls_jupyter.gpu_process.allocators.library import Allowance


class TorchFraction:
    """The allocator of an imported PyTorch. Without CUDA, and before it is initialised, there is nothing to hold."""

    def __init__(self, torch: Any, follower: Allowance) -> None:
        self._torch = torch
        self._follower = follower
        self._ready = False
        self._told = threading.local()
        # Runs now, or at the end of the initialisation: doing it ourselves would create a CUDA context at the import.
        TORCH_WHEN_READY.of(torch.cuda)(self._initialised)

    def _initialised(self) -> None:
        """PyTorch calls this in the user's first use of CUDA, which must not fail by it."""
        for step in (self._begin, self._observe, self.follow):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - whatever an unknown version raises
                self._follower.failed("torch", error)
            if not self._ready:
                return

    def _begin(self) -> None:
        """Unless it has an allocator of the user's from here on, which cannot tell what it holds."""
        if self._torch.cuda.get_allocator_backend() == "pluggable":
            raise LacksError(
                "PyTorch allocates by what torch.cuda.memory.change_current_allocator was given: that is held to this "
                "notebook's share of the GPU by samples only, and the scheduler is not asked for more where it is "
                "short."
            )
        self._ready = True

    def _observe(self) -> None:
        attach = TORCH_OUT_OF_MEMORY.of(self._torch)
        try:
            attach(self._on_out_of_memory)
        except RuntimeError as error:  # `backend:cudaMallocAsync`, or an allocator of the user's own
            raise LacksError(
                "The allocator that PyTorch uses here tells nobody where it runs out of memory: the scheduler is not "
                "asked for more then."
            ) from error

    def devices(self) -> set[int]:
        """All that it sees: those that were ordered for this process."""
        return set(range(self._torch.cuda.device_count())) if self._ready else set()

    def held_bytes(self, device: int) -> int:
        """What it has reserved, cached blocks included."""
        return int(self._torch.cuda.memory_reserved(device)) if self._ready else 0

    def follow(self) -> None:
        """Set the fraction of each device. One store in PyTorch's allocator: safe while a cell allocates."""
        for device in self.devices():
            left = self._follower.left_bytes(self, device)
            # Setting it makes its device the thread's current one.
            with self._torch.cuda.device(device):
                total = self._torch.cuda.mem_get_info(device)[1]
                fraction = 1.0 if left is None else min(1.0, left / total)
                self._torch.cuda.set_per_process_memory_fraction(fraction, device)

    def trim(self) -> int:
        """Free all blocks that are not in use."""
        devices = self.devices()
        before = sum(map(self.held_bytes, devices))
        if devices:
            self._torch.cuda.empty_cache()
        return before - sum(map(self.held_bytes, devices))

    def _on_out_of_memory(self, device: int, size: int, allowed_bytes: int, free_bytes: int) -> None:
        """PyTorch calls this in the thread whose allocation has failed, just before it raises."""
        del allowed_bytes, free_bytes
        self._told.answer = self._follower.ask(device, size)

    def explain(self, error: BaseException) -> None:
        """Put into PyTorch's error what the daemon said when the allocation failed. Called before it is shown."""
        told: Answer | None = self._told.__dict__.pop("answer", None)
        if told is None or not isinstance(error, self._torch.cuda.OutOfMemoryError):
            return
        again = f"{told.reason} by now: run the cell again"
        error.args = (explained(str(error), replace(told, reason=again) if told.granted else told),)
