"""What all libraries of the GPU process may hold together, and how much of that is left for each of them."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from nls_jupyter.between.after_import import AfterImport
from nls_jupyter.between.seam import MissingSeamError
from nls_jupyter.gpu_process.allocators.captures import Captures
from nls_jupyter.gpu_process.allocators.contexts import Contexts, gpu_of
from nls_jupyter.gpu_process.allocators.kept_apart import KeptApart
from nls_jupyter.gpu_process.allocators.library import LacksError
from nls_jupyter.saved_state.manifest import describe

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from nls_jupyter.gpu_process.allocators.asking import Answer, Asking
    from nls_jupyter.gpu_process.allocators.library import Library

_log = logging.getLogger(__name__)


class Follower:
    """The allowance of this GPU process. It holds on each of its devices, the CUDA context included.

    Attributes:
        allowance_bytes: `None`: no bound.
        libraries: those that the user has imported.
    """

    def __init__(
        self,
        asking: Asking,
        tell: Callable[[str], object] = _log.warning,
        contexts: Contexts | None = None,
    ) -> None:
        """`tell` gets a sentence for the user about each library that cannot be looked after."""
        self._contexts = contexts or Contexts()
        self._asking = asking
        self._tell = tell
        self._lock = threading.RLock()
        self._captures = Captures(self._lock, self.trim)
        self.allowance_bytes: int | None = None
        self.libraries: list[Library] = []
        self._imports = AfterImport(
            {
                "cupy": self._add_cupy,
                "nls_jupyter.simulated_cupy": self._add_cupy,
                "torch": self._add_torch,
                "jax": lambda _: self._add(KeptApart("JAX", self)),
                "tensorflow": lambda _: self._add(KeptApart("TensorFlow", self)),
                "rmm": lambda _: self._add(KeptApart("RMM", self)),
            },
            self.failed,
        )

    def install(self) -> None:
        """Look after each library as soon as it is imported; one that is there already is found."""
        self._imports.install()

    def remove(self) -> None:
        """Look after no more libraries than those that are there."""
        self._imports.remove()

    def _add_cupy(self, cupy: ModuleType) -> None:
        from nls_jupyter.gpu_process.allocators.cupy_pool import CupyPool

        self._captures.follow(getattr(cupy.cuda, "Stream", None), "begin_capture", "end_capture")
        self._add(CupyPool(cupy, self))

    def _add_torch(self, torch: ModuleType) -> None:
        from nls_jupyter.gpu_process.allocators.torch_fraction import TorchFraction

        self._captures.follow(getattr(torch.cuda, "CUDAGraph", None), "capture_begin", "capture_end")
        self._add(TorchFraction(torch, self))

    def _add(self, library: Library) -> None:
        with self._lock:
            library.follow()
            self.libraries.append(library)

    def failed(self, library: str, error: Exception) -> None:
        """A library could not be looked after; no reason to fail the user's import, but one to tell it."""
        if isinstance(error, LacksError):
            self._tell(str(error))
        elif isinstance(error, MissingSeamError):
            self._tell(f"{error}.")
        else:
            self._tell(
                f"{library} is not held to this notebook's share of the GPU, and the scheduler is not asked for more "
                f"where its memory is short: {describe(error)}."
            )

    def follow(self, allowance_bytes: int | None) -> None:
        """The daemon allows so much from now on. Where more is held, caches go at once; variables stay."""
        with self._lock:
            self.allowance_bytes = allowance_bytes
            for library in self.libraries:
                library.follow()
            if allowance_bytes is not None and any(self.held_bytes(each) > allowance_bytes for each in self._devices()):
                self.trim()

    def look_again(self) -> None:
        """Between cells, when nothing is counted that is not there yet: what contexts take by now is not left.

        Never raises, as the cell's answer waits for it: a Gpu that the cell has lost lets no library follow.
        """
        try:
            with self._lock:
                if self._measure():
                    for library in self.libraries:
                        library.follow()
        except Exception as error:  # noqa: BLE001 - whatever the libraries raise
            _log.warning("What contexts take of the GPU could not be looked at: %s", describe(error))

    def _measure(self) -> bool:
        changed = [self._contexts.measure(each, partial(self._allocated_bytes, each)) for each in self._devices()]
        return any(changed)

    def _devices(self) -> set[int]:
        return {device for library in self.libraries for device in library.devices()}

    def trim(self) -> int:
        """Have every library give back what it caches, after the capture of a CUDA graph. Returns the bytes so far."""
        with self._lock:
            if self._captures.under_way():
                return 0
            return sum(library.trim() for library in self.libraries)

    def left_bytes(self, library: Library, device: int) -> int | None:
        """What `library` may have taken from `device` in all; `None`: no bound."""
        allowance_bytes = self.allowance_bytes
        if allowance_bytes is None:
            return None
        others = sum(other.held_bytes(device) for other in tuple(self.libraries) if other is not library)
        return max(0, allowance_bytes - self._contexts.bytes(device) - others)

    def held_bytes(self, device: int) -> int:
        """What this process has taken from `device`, as its libraries know, the context included."""
        return self._contexts.bytes(device) + self._allocated_bytes(device)

    def _allocated_bytes(self, device: int) -> int:
        return sum(library.held_bytes(device) for library in tuple(self.libraries))

    def grew(self, library: Library) -> None:
        """`library` has taken more from a device: what is left for the others is less."""
        for other in tuple(self.libraries):
            if other is not library:
                other.follow()

    def ask(self, device: int, size_bytes: int) -> Answer:
        """Ask the daemon for what `device` did not have; see `Asking.ask`."""
        return self._asking.ask(gpu_of(device), size_bytes, self.held_bytes(device))
