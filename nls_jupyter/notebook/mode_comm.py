"""Tells a frontend whether auto mode is on: a comm of this kernel's that is there from the start, for whoever asks.

It is put into the kernel's registry without a `comm_open`, which frontends that do not know its target would answer
with an error. A page finds it by `comm_info_request`, asks by any message, and hears of each change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.notebook.topics import topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipykernel.ipkernel import IPythonKernel

TARGET: Final = "nls_jupyter.mode"


class ModeComm:
    """What ipykernel's registry of comms needs, and no more.

    Attributes:
        comm_id, target_name: the same in every kernel, each of which has its own registry.
    """

    comm_id = TARGET
    target_name = TARGET

    def __init__(self, kernel: IPythonKernel, is_auto: Callable[[], bool]) -> None:
        self._kernel: Any = kernel  # much of ipykernel is untyped
        self._is_auto = is_auto
        self._closed = False  # ipykernel sets it when a frontend closes the comm
        self._registry.register_comm(self)

    @property
    def _registry(self) -> Any:
        return self._kernel.comm_manager

    def tell(self) -> None:
        """Send `{"auto": bool}` to all frontends; those that never asked do not know the comm and ignore it."""
        kernel = self._kernel
        content = {"comm_id": self.comm_id, "data": {"auto": self._is_auto()}}
        kernel.session.send(
            kernel.iopub_socket, "comm_msg", content, parent=kernel.get_parent("shell"), ident=topic(kernel, "comm_msg")
        )

    def handle_msg(self, message: object) -> None:
        """Called by ipykernel: a frontend asks."""
        del message
        self.tell()

    def handle_close(self, message: object) -> None:
        """Called by ipykernel, which has forgotten the comm: one page has closed it, the others have not."""
        del message
        self._closed = False
        self._registry.register_comm(self)
