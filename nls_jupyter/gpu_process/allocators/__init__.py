"""Holds the memory that libraries of the GPU process allocate to what the daemon allows, and asks for more in need.

Nothing is imported for it: each library is looked after from the moment when the user has imported it.
"""

from nls_jupyter.gpu_process.allocators.asking import Answer, Asking
from nls_jupyter.gpu_process.allocators.follower import Follower
from nls_jupyter.gpu_process.allocators.showing import explain_failed_allocations

__all__ = ["Answer", "Asking", "Follower", "explain_failed_allocations"]
