"""What holds whom to a limit without any rights over the GPU: the libraries' own allocators, and what they cannot do.

`docs/policy.md` shows the same table, and `nls doctor` the rows of what is installed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

JAX_FRACTION_VARIABLE: Final = "XLA_PYTHON_CLIENT_MEM_FRACTION"
#: What JAX takes of a GPU where nobody says anything (docs.jax.dev, "GPU memory allocation").
JAX_PART: Final = 0.75


@dataclass(frozen=True, slots=True)
class Enforcement:
    """One row.

    Attributes:
        packages: of which one has to be installed.
        by: what keeps it from taking more.
        follows: what becomes of an allowance that changes while it runs.
    """

    name: str
    packages: tuple[str, ...]
    by: str
    follows: str


TABLE: Final = (
    Enforcement(
        "CuPy",
        ("cupy-cuda12x", "cupy-cuda13x", "cupy"),
        "its default pool asks before it takes more; a pool or an allocator of the user's own is held by samples",
        "at once; a failed allocation asks the daemon and is tried again",
    ),
    Enforcement(
        "PyTorch",
        ("torch",),
        "its memory fraction on each of its devices, for plain and expandable segments and for cudaMallocAsync",
        "at once; a failed allocation asks the daemon, and the next one finds the room (not with cudaMallocAsync)",
    ),
    Enforcement(
        "JAX",
        ("jax",),
        f"{JAX_FRACTION_VARIABLE}, set at the start from the limit unless the user has set it",
        "not while it runs, nor does it give memory back: who is owed its burst has the notebook moved or suspended",
    ),
    Enforcement(
        "TensorFlow",
        ("tensorflow", "tensorflow-cpu"),
        "samples; in a notebook it grows as it needs (TF_FORCE_GPU_ALLOW_GROWTH). A limit of its own is the user's to "
        "set: tf.config.set_logical_device_configuration",
        "not while it runs, nor does it give memory back: who is owed its burst has the notebook moved or suspended",
    ),
    Enforcement(
        "RMM (cuDF, cuML, cuGraph)",
        ("rmm-cu12", "rmm-cu13", "rmm"),
        "samples; cuDF, when it is imported, has CuPy and Numba allocate by it, too. A limit of its own is the user's "
        "to set: rmm.mr.LimitingResourceAdaptor",
        "not while it runs, nor does it give memory back: who is owed its burst has the notebook moved or suspended",
    ),
)
ANYTHING_ELSE: Final = Enforcement(
    "anything else",
    (),
    "samples: trimmed, then stopped; the driver's own limits where the daemon may set them (r615)",
    "by the next sample",
)


def jax_fraction(limit_bytes: int, total_bytes: int, context_bytes: int, *, preallocates: bool) -> str | None:
    """What JAX may have of its GPU, as it reads it; `None` where there is no room beside the context.

    Args:
        limit_bytes: of its workload, the context included.
        total_bytes: of the smallest of its GPUs.
        context_bytes: what a context is counted as.
        preallocates: whether it takes all that at its first use: then it leaves as much of its limit to the libraries
            as it does by itself of a whole GPU.
    """
    part = min(limit_bytes, total_bytes) / total_bytes
    fraction = JAX_PART * part if preallocates else part - context_bytes / total_bytes
    rounded = math.floor(fraction * 10_000) / 10_000
    return f"{rounded:g}" if rounded > 0 else None
