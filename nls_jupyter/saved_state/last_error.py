"""The last error, for `%tb` and `%debug`: its traceback ends with its process, and who asks for it is told so."""

from __future__ import annotations

import functools
import sys
from typing import Any

from nls_jupyter.between.seams import GET_EXC_INFO
from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.kinds import name_of


class LastError:
    """That of a shell. Errors are frequent: so nobody is told of one who does not ask."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._lost: str | None = None

    def aspect(self) -> Aspect:
        """What it is called; that of a process before as long as there has been none in this one."""
        return Aspect("the last error", self._name, self._say)

    def _name(self) -> str | None:
        kind = getattr(sys, "last_type", None)
        return self._lost if kind is None else name_of(kind)

    def _say(self, name: str) -> None:
        """Have `%tb` and `%debug` say it. IPython sets `sys.last_traceback` when it shows an error."""
        is_first, self._lost = self._lost is None, name
        if is_first:
            self._tell_debug()
            self._tell_tb()

    def _tell_debug(self) -> None:
        debug = self._shell.debugger

        @functools.wraps(debug)
        def debugger(force: bool = False) -> None:  # noqa: FBT001, FBT002 - as IPython's own
            if (force or self._shell.call_pdb) and not hasattr(sys, "last_traceback"):
                self._tell()
            else:
                debug(force)

        self._shell.debugger = debugger

    def _tell_tb(self) -> None:
        find = GET_EXC_INFO.of(self._shell, None)
        if find is None:
            return

        @functools.wraps(find)
        def exc_info(exc_tuple: Any = None) -> Any:
            try:
                return find(exc_tuple)
            except ValueError:  # there is none
                self._tell()
                raise

        GET_EXC_INFO.put(self._shell, exc_info)

    def _tell(self) -> None:
        said = f"The traceback of the last error, {self._lost}, ended with its process: run its cell again."
        sys.stderr.write(f"GPU: {said}\n")
