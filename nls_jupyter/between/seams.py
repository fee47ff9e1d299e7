"""The names of ipykernel and IPython that we use although nobody has promised them.

Private ones, and methods that we replace, override or look for on the stack. A version without one of them is told in
the notebook before its first GPU cell, with what does not work; what asks an object for a private name does it here.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final

_IPYKERNEL = "6.29 to 7.4"
_IPYTHON = "8.10 to 9.18"
_SHELL = "IPython.core.interactiveshell:InteractiveShell"
_ZMQ_SHELL = "ipykernel.zmqshell:ZMQInteractiveShell"
_KERNEL = "ipykernel.ipkernel:IPythonKernel"
_NO_START = "the GPU process does not start"


@dataclass(frozen=True, slots=True)
class Seam:
    """One such name.

    Attributes:
        owner: the class that has it, as `module:Class`.
        name: the attribute.
        seen_in: the versions of the package that were looked at, all of which have it.
        without: what does not work where it is missing, as a clause.
        set_in: the method that sets it, where only instances have it.
    """

    owner: str
    name: str
    seen_in: str
    without: str
    set_in: str = ""

    @property
    def module(self) -> str:
        """Where the class is."""
        return self.owner.partition(":")[0]

    @property
    def missing(self) -> bool:
        """Whether the installed version does not have it."""
        try:
            owner = getattr(importlib.import_module(self.module), self.owner.partition(":")[2])
        except (ImportError, AttributeError):
            return True
        if not self.set_in:
            return not hasattr(owner, self.name)
        code = getattr(getattr(owner, self.set_in, None), "__code__", None)
        return code is None or self.name not in code.co_names

    def told(self) -> str:
        """One sentence for a version that does not have it."""
        from importlib import metadata  # slow to import, and hardly ever needed

        package, where = self.module.partition(".")[0], f"{self.owner.partition(':')[2]}.{self.name}"
        return f"{package} {metadata.version(package)} has no {where}, as {self.seen_in} have: {self.without}."

    def of(self, thing: Any) -> Any:
        """What `thing` has under this name; `None` where it has nothing."""
        return getattr(thing, self.name, None)

    def put(self, thing: Any, value: object) -> None:
        """Have `thing` use `value`."""
        setattr(thing, self.name, value)


# Asked for and set.
SHOW_TRACEBACK: Final = Seam(
    _SHELL,
    "_showtraceback",
    _IPYTHON,
    "what ends a GPU cell and has been shown, as exception groups are, is shown twice",
)
LAST_TRACEBACK: Final = Seam(
    _ZMQ_SHELL,
    "_last_traceback",
    _IPYKERNEL,
    "the reply to a GPU cell that an exception group ended is without its traceback",
    set_in="_showtraceback",
)
ALLOW_STDIN: Final = Seam(_KERNEL, "_allow_stdin", _IPYKERNEL, "input() does not work in cells of auto mode")
OUTPUT_HOOKS: Final = Seam(
    "ipykernel.zmqshell:ZMQDisplayPublisher",
    "_hooks",
    _IPYKERNEL,
    "what was registered by register_hook does not see the outputs of %%gpu cells",
)

# Told when it is asked for: to look for it would import what few notebooks use.
RELOADER: Final = Seam(
    "IPython.extensions.autoreload:AutoreloadMagics",
    "_reloader",
    _IPYTHON,
    "what %autoreload has set does not come back with the GPU process",
    set_in="__init__",
)

# Looked for.
CANCEL_ON_SIGINT: Final = Seam(
    _KERNEL,
    "_cancel_on_sigint",
    _IPYKERNEL,
    "GpuReclaimed may not reach a GPU cell that awaits, which then ends with its process",
)
RUN_AST_NODES: Final = Seam(_SHELL, "run_ast_nodes", _IPYTHON, "a UsageError in a GPU cell is shown twice")

SEAMS: Final = (
    *(SHOW_TRACEBACK, LAST_TRACEBACK, ALLOW_STDIN, OUTPUT_HOOKS, CANCEL_ON_SIGINT, RUN_AST_NODES),
    # Replaced or overridden.
    Seam(_SHELL, "run_cell_async", _IPYTHON, _NO_START),
    Seam(_SHELL, "showtraceback", _IPYTHON, _NO_START),
    Seam(_SHELL, "show_usage_error", _IPYTHON, _NO_START),
    Seam(_ZMQ_SHELL, "ask_exit", _IPYKERNEL, "exit() in a GPU cell ends the GPU process"),
    Seam(
        _KERNEL,
        "execute_request",
        _IPYKERNEL,
        "GPU cells may run twice when their process dies, and count for themselves",
    ),
    Seam(_KERNEL, "set_parent", _IPYKERNEL, "what a thread prints after its GPU cell was saved is not shown"),
    Seam(_KERNEL, "pre_handler_hook", _IPYKERNEL, "GpuReclaimed may come in a later cell than it was meant for"),
    Seam(_KERNEL, "do_debug_request", _IPYKERNEL, "auto mode cannot be switched on"),
    Seam("ipykernel.kernelapp:IPKernelApp", "init_iopub", _IPYKERNEL, "a GPU cell with very much output may never end"),
)


def missing() -> list[str]:
    """One sentence for each name that the installed versions do not have."""
    return [seam.told() for seam in SEAMS if seam.missing]
