"""How this kernel ends in order: what its notebook wants kept is kept before anything of it is gone.

A shutdown comes as a message, and ipykernel ends the kernel's children right behind it; a service manager sends
SIGTERM, and so does Jupyter when a shutdown takes it too long. A restart is how a user begins anew: it keeps nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipykernel.ipkernel import IPythonKernel


class Ending:
    """One kernel's.

    Attributes:
        came: it was told to end, and what is to be kept was kept.

    Args:
        kernel: the notebook's.
        in_order: keeps what is to be kept; called in the control thread, or in the main one.
        close: ends all that belongs to this kernel; called before SIGTERM does what it does.
    """

    def __init__(self, kernel: IPythonKernel, in_order: Callable[[], None], close: Callable[[], None]) -> None:
        self._owner = os.getpid()
        self._in_order = in_order
        self._close = close
        self.came = False
        self._own_shutdown: Callable[[bool], Any] = kernel.do_shutdown
        vars(kernel)["do_shutdown"] = self._shutdown
        with contextlib.suppress(ValueError):  # made in another thread than the main one
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._terminate)

    def _shutdown(self, restart: bool) -> Any:  # noqa: FBT001 - ipykernel's signature
        if not restart:
            self._in_order()
        self.came = True
        return self._own_shutdown(restart)

    def _terminate(self, number: int, _: object) -> None:
        if os.getpid() == self._owner:  # a forked child has the handler, too
            self._in_order()
            self.came = True
            self._close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
