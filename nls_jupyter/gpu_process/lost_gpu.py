"""Whether the error that ended a cell has cost the process its Gpu: no cell after it can use that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nls_jupyter.saved_state import libraries, why_dead
from nls_jupyter.saved_state.kinds import module_of, name_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# Only after an error that may come from a Gpu is it asked.
_OF_A_GPU = re.compile(r"cuda|cu(blas|dnn|fft|rand|solver|sparse)|nccl|triton", re.IGNORECASE)


def why_lost(error: BaseException | None) -> str | None:
    """CUDA's own words for it, if `error` says so, or what it was raised from or beside.

    Libraries wrap such errors and users raise them anew, so the Gpu itself is asked, and what it still does waited for.
    """
    if not any(
        _OF_A_GPU.search(f"{module_of(type(one))} {name_of(type(one))} {text_of(one)}") for one in _chain(error)
    ):
        return None
    try:
        libraries.synchronize()
    except Exception as answer:  # noqa: BLE001 - whatever the libraries raise
        return why_dead(answer)
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
