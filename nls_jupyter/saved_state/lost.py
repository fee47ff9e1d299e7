"""What could not be made again, and why.

A reason is kept, never the error: with its frames that would keep all that was made so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.arena import SavedStateDamagedError
from nls_jupyter.saved_state.kinds import is_of, module_of, name_of, text_of
from nls_jupyter.saved_state.manifest import describe
from nls_jupyter.saved_state.watchdog import StuckError

if TYPE_CHECKING:
    from collections.abc import Iterable

# What CuPy and PyTorch tell of CUDA where it is not their own allocator that found no room: a context, a library's
# workspace, a graph.
_NO_ROOM = (
    "CUDA error: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
)


@dataclass(frozen=True, slots=True)
class Why:
    """What an object could not be made for.

    Attributes:
        reason: one clause.
        lacks_memory: it could be made where more Gpu memory is free.
    """

    reason: str
    lacks_memory: bool = False


class Lost:
    """Stands where an object could not be made."""

    def __init__(self, why: Why, args: tuple[Any, ...] = ()) -> None:
        self.why = why
        self.args = args


class NotMadeError(Exception):
    """Raised in the place of an error that is known by its reason only.

    Attributes:
        why: the reason.
    """

    def __init__(self, why: Why) -> None:
        super().__init__(why.reason)
        self.why = why


def why(error: BaseException, involved: Iterable[Any] = ()) -> Why:
    """The error, or what was lost before and made this fail."""
    if is_of(error, NotMadeError):
        return error.why
    if issubclass(type(error), (SavedStateDamagedError, StuckError)):
        return Why(str(error))
    for part in involved:
        inside = part.values() if type(part) is dict else part if type(part) in {list, tuple} else (part,)
        for candidate in inside:
            if type(candidate) is Lost:
                return candidate.why
    return Why(describe(error), _lacks_memory(error))


def _lacks_memory(error: BaseException) -> bool:
    """Whether a library says that the Gpu has no room: by its own type, or by the driver's word in another one."""
    library, text = module_of(type(error)).partition(".")[0], text_of(error)
    if library in {"jax", "jaxlib", "tensorflow"}:
        return text.startswith("RESOURCE_EXHAUSTED") or name_of(type(error)) == "ResourceExhaustedError"
    if library in {"cupy", "nls_jupyter", "torch"} and name_of(type(error)) == "OutOfMemoryError":
        return True
    return library in {"builtins", "cupy", "cupy_backends", "torch"} and text.startswith(_NO_ROOM)
