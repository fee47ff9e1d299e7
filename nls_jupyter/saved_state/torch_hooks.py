"""Hooks that PyTorch calls for all modules and optimizers of a process, and the numbers by which hooks are known."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between import seams
from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.places import Place, is_librarys_code, name_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from nls_jupyter.between.seam import Seam
    from nls_jupyter.saved_state.places import Entry

#: What the user reads of a hook, and who has those of its kind.
HOOKS: Final[Mapping[str, Seam]] = {
    "forward pre-hook": seams.TORCH_FORWARD_PRE_HOOKS,
    "forward hook": seams.TORCH_FORWARD_HOOKS,
    "backward pre-hook": seams.TORCH_BACKWARD_PRE_HOOKS,
    "backward hook": seams.TORCH_BACKWARD_HOOKS,
    "hook of buffers": seams.TORCH_BUFFER_HOOKS,
    "hook of submodules": seams.TORCH_SUBMODULE_HOOKS,
    "hook of parameters": seams.TORCH_PARAMETER_HOOKS,
    "hook before steps": seams.TORCH_STEP_PRE_HOOKS,
    "hook after steps": seams.TORCH_STEP_POST_HOOKS,
}
#: Which of the hooks of `forward` want keywords, and which are called in any case.
MARKS: Final = (seams.TORCH_HOOKS_WITH_KEYWORDS, seams.TORCH_HOOKS_ALWAYS_CALLED)


def place() -> Place:
    """Those that cells gave."""
    return Place("PyTorch hook", _entries, _put, lambda _, parts: f"{name_of(parts[-1])}, {parts[0]}", is_librarys_code)


def numbers() -> Aspect:
    """A new hook gets the next number, and would take the place of one that came back with the same."""
    return Aspect("PyTorch's numbers of hooks", lambda: _handle().next_id, _set_next, "torch", early=True)


def _handle() -> Any:
    return sys.modules["torch"].utils.hooks.RemovableHandle


def _set_next(number: int) -> None:
    _handle().next_id = max(_handle().next_id, number)


def _entries() -> Iterator[tuple[Hashable, Entry]]:
    for what, seam in HOOKS.items():
        is_full = seams.TORCH_BACKWARD_IS_FULL.here(None) if seam is seams.TORCH_BACKWARD_HOOKS else None
        for number, hook in seam.here({}).items():
            yield (what, number), (what, number, *(number in mark.here({}) for mark in MARKS), is_full, hook)


def _put(what: str, number: int, *marks_and_hook: Any) -> None:
    """Raises RuntimeError where another hook has its number, or hooks are there that go with none of its kind."""
    *marks, is_full, hook = marks_and_hook
    seam = HOOKS[what]
    module = importlib.import_module(seam.module)
    if is_full is not None and seams.TORCH_BACKWARD_IS_FULL.here() not in {None, is_full}:
        raise RuntimeError("PyTorch has full and other backward hooks of all modules only apart")
    if seam.here().setdefault(number, hook) is not hook:
        raise RuntimeError("another hook has its place: run its cell again")
    if is_full is not None:
        seams.TORCH_BACKWARD_IS_FULL.put(module, is_full)
    for mark, is_marked in zip(MARKS, marks, strict=True):
        if is_marked:
            mark.here()[number] = True
