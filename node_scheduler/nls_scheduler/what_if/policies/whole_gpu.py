"""A whole Gpu for each notebook, from its begin to its end; who comes later waits in line.

Source: NVIDIA's device plugin for Kubernetes, whose resource `nvidia.com/gpu` counts whole devices, for a pod's life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.what_if.policies.packing import Packed

if TYPE_CHECKING:
    from nls_scheduler.what_if.play.stage import Actor


class WholeGpu(Packed):
    """Whatever is asked for is a whole one."""

    name = "whole"
    title = "A whole GPU each"

    def share_bytes(self, actor: Actor) -> int:
        """All of it."""
        del actor
        return self._stage.gpu_bytes
