"""The GPUs that this process was given stay its own, whatever a cell writes into `CUDA_VISIBLE_DEVICES`.

CUDA reads that variable when a cell first uses it. Many notebooks set it before that, to the number of a GPU of their
author's: each of them would come to the first GPU of this machine, whoever has it. In here such a number is one of this
process's own GPUs, as in a container that has no others.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.drivers.selection import may_name_a_gpu, words_of
from nls_scheduler.wire.protocol import VISIBLE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_GIVEN: Final = (
    f"{VISIBLE_VARIABLE} chooses among the GPUs that this notebook has, counted from 0, and %s names none of them: it "
    "keeps what it has. Which GPU that is, is the scheduler's choice; `%%gpu request --gpus N` asks for several."
)
_SHOWN: Final = 100
_Environ: Any = type(os.environ)


class Environment(_Environ):  # type: ignore[misc]
    """`os.environ`, in which only this process's own GPUs can be chosen, or none."""

    given: str | None = None

    def __setitem__(self, name: str, value: str) -> None:
        """A cell sets a variable."""
        super().__setitem__(name, self._chosen(value) if name == VISIBLE_VARIABLE and isinstance(value, str) else value)

    def __delitem__(self, name: str) -> None:
        """A cell removes one. Without a mask CUDA would see all GPUs: for CUDA it stays."""
        super().__delitem__(name)
        if name == VISIBLE_VARIABLE and Environment.given is not None:
            os.putenv(name, Environment.given)

    def _chosen(self, value: str) -> str:
        given, words = Environment.given, words_of(value)
        if given is None or not may_name_a_gpu(words[0]):
            return value  # as it hides all of them
        own = given.split(",")
        by_name = {name: gpu for number, gpu in enumerate(own) for name in (gpu, str(number))}
        chosen = [by_name[word] for word in dict.fromkeys(words) if word in by_name]
        if not chosen:
            warnings.warn(NOT_GIVEN % ascii(value[:_SHOWN]), RuntimeWarning, stacklevel=3)
        return ",".join(chosen or own)


def give(environment: Mapping[str, str | None]) -> None:
    """This process is given the GPUs of that environment."""
    Environment.given = environment.get(VISIBLE_VARIABLE)


def keep() -> None:
    """From now on cells keep to what this process was given."""
    give(os.environ)
    os.environ.__class__ = Environment
