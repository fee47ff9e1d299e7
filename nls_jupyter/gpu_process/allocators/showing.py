"""Puts what the scheduler says about a failed allocation into the error that the user reads."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nls_jupyter.gpu_process.allocators.follower import Follower


def explain_failed_allocations(shell: Any, follower: Follower) -> None:
    """Have `shell` ask the libraries before it shows an error: PyTorch raises its own from where Python cannot reach.

    Args:
        shell: IPython's, of the GPU process.
        follower: who knows the libraries.
    """
    show = shell.showtraceback

    @functools.wraps(show)
    def showtraceback(exc_tuple: Any = None, *args: Any, **options: Any) -> Any:
        error = sys.exc_info()[1] if exc_tuple is None else exc_tuple[1]
        if error is not None:
            for library in tuple(follower.libraries):
                library.explain(error)
        return show(exc_tuple, *args, **options)

    shell.showtraceback = showtraceback
