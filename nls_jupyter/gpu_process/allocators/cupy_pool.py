"""CuPy's memory pool, held to the allowance by a base allocator below it; the simulated CuPy goes the same way.

The base allocator is asked only where the pool has no free block, and says no as the driver would: the pool then frees
its cache and asks again, and raises OutOfMemoryError at last. Only then is the daemon asked, and the allocation tried
once more. The pool holds no lock meanwhile.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.seams import CUPY_POOL
from nls_jupyter.gpu_process.allocators.library import explained
from nls_jupyter.gpu_process.warm_imports import cuda_touched

if TYPE_CHECKING:
    from nls_jupyter.gpu_process.allocators.library import Allowance

SIMULATED: Final = "nls_jupyter.simulated_cupy"
_ERROR_MEMORY_ALLOCATION = 2


class CupyPool:
    """The default pool of an imported CuPy, replaced by one that follows.

    What was allocated before stays where it is and counts. A pool or an allocator of the user's own is left alone:
    what it takes shows in the driver's samples only.
    """

    def __init__(self, cupy: Any, follower: Allowance) -> None:
        """`cupy`: the module, `nls_jupyter.simulated_cupy` included."""
        self._cupy = cupy
        self._follower = follower
        self._devices: set[int] = set()
        self._before = cupy.get_default_memory_pool()
        with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):  # no driver, no device: nothing was allocated
            if _is_in_use(cupy) and self._before.total_bytes() > 0:
                self._devices.add(cupy.cuda.runtime.getDevice())
        self.pool = _following_pool(cupy, self)
        if cupy.cuda.get_allocator() == self._before.malloc:
            cupy.cuda.set_allocator(self.pool.malloc)
        CUPY_POOL.put(cupy, self.pool)

    def devices(self) -> set[int]:
        """Where it has allocated; asking CUDA about another device would create a context there."""
        return set(self._devices)

    def held_bytes(self, device: int) -> int:
        """All that its pools have on `device`, cached blocks included."""
        if device not in self._devices:
            return 0
        with self._cupy.cuda.Device(device):
            return int(self.pool.total_bytes() + self._before.total_bytes())

    def follow(self) -> None:
        """Nothing to do: each allocation looks up what is left."""

    def explain(self, error: BaseException) -> None:
        """Nothing to do: what CuPy raises was told already."""

    def trim(self) -> int:
        """Free all blocks that are not in use, on every device."""
        freed = 0
        for device in self.devices():
            before = self.held_bytes(device)
            with self._cupy.cuda.Device(device):
                self.pool.free_all_blocks()
                self._before.free_all_blocks()
            freed += before - self.held_bytes(device)
        return freed

    def allocate(self, size: int) -> Any:
        """The base allocator. The pool has counted `size` already. Raises CUDARuntimeError as the driver does."""
        cuda = self._cupy.cuda
        device = cuda.runtime.getDevice()
        self._devices.add(device)
        left = self._follower.left_bytes(self, device)
        if left is not None and self.held_bytes(device) > left:
            raise cuda.runtime.CUDARuntimeError(_ERROR_MEMORY_ALLOCATION)
        pointer = cuda.MemoryPointer(cuda.Memory(size), 0)
        self._follower.grew(self)
        return pointer

    def ask(self, size: int, error: MemoryError) -> bool:
        """An allocation has failed for good: whether to try again. What the daemon says is put into `error`."""
        answer = self._follower.ask(self._cupy.cuda.runtime.getDevice(), size)
        error.args = (explained(str(error), answer),)
        return answer.granted


def _is_in_use(cupy: Any) -> bool:
    """Whether anything can have been allocated. To ask the pool would initialize CUDA, in a process that stands by too.

    Its `total_bytes` asks for the current device (CuPy 14.2, `cupy/cuda/memory.pyx`).
    """
    return cupy.__name__ == SIMULATED or cuda_touched() is not None


def _following_pool(cupy: Any, owner: CupyPool) -> Any:
    out_of_memory = cupy.cuda.memory.OutOfMemoryError

    class FollowingPool(cupy.cuda.MemoryPool):  # type: ignore[misc] # known at run time only
        """CuPy's pool within the memory allowance of this GPU process."""

        def malloc(self, size: int) -> Any:
            """As CuPy's; where memory is short, the scheduler is asked before OutOfMemoryError is raised."""
            try:
                return super().malloc(size)
            except out_of_memory as error:
                if not owner.ask(size, error):
                    raise
                told = error
            try:
                return super().malloc(size)
            except out_of_memory as error:
                error.args = told.args
                raise

    return FollowingPool(owner.allocate)
