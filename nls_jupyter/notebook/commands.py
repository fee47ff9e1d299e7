"""What `%gpu` and `%%gpu` do: parse, call, render. Imported with the first of them."""

from __future__ import annotations

import inspect
import os
import re
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from nls_jupyter.between import numbering
from nls_jupyter.between.errors import GpuUnavailable, GpuUsageError
from nls_jupyter.notebook import options, variables
from nls_jupyter.notebook.transfer import Transfer, names_in
from nls_jupyter.supervisor.notices import clock_time, count
from nls_scheduler.units.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from IPython.core.interactiveshell import InteractiveShell

    from nls_jupyter.between.cell_result import CellResult
    from nls_jupyter.notebook.notebook_gpu import NotebookGpu
    from nls_jupyter.notebook.status_view import GpuStatus

_Value = TypeVar("_Value")
# IPython's %%time puts out nothing before what stands below it; of other magics nobody knows.
_GPU_CELL = re.compile(r"\s*(%%time\b.*\n\s*)?%%gpu\b")


class Magics(Protocol):
    """Whose commands they are: `GpuMagics`.

    Attributes:
        shell: the notebook's.
        auto: whether every cell goes to the GPU process; to set it switches.
        retry: whether every GPU cell runs again whose GPU was taken away.
    """

    shell: InteractiveShell
    auto: bool
    retry: bool

    @property
    def gpu_of_notebook(self) -> NotebookGpu:
        """Made at first use. Raises GpuUnavailable."""


class Commands:
    """One for each line or cell: it keeps nothing.

    Args:
        magics: whose they are.
        help_text: what `%gpu --help` prints.
    """

    def __init__(self, magics: Magics, help_text: str | None) -> None:
        self._magics = magics
        self._help_text = help_text
        self._shell = magics.shell

    @property
    def _gpu(self) -> NotebookGpu:
        return self._magics.gpu_of_notebook

    def line(self, line: str) -> GpuStatus | None:
        """`%gpu line`: returns what is to be displayed. Raises GpuError."""
        try:
            return self._command(options.split(line))
        except options.HelpShown:
            return None

    def cell(self, line: str, cell: str) -> CellResult | None:
        """`cell` below a `%%gpu line`. Raises GpuError, and what the cell raised."""
        try:
            return self._run_cell(options.split(line), cell)
        except options.HelpShown:
            return None

    def _run_cell(self, words: list[str], cell: str) -> CellResult | None:
        asked = options.of_cell(words)
        gpu = self._gpu
        label = f"[{self._shell.displayhook.prompt_count}]"
        wait, timeout_s = not asked["no_wait"], asked["timeout"]
        retry = asked["retry"] or self._magics.retry
        inputs, outputs = names_in(asked["input"] or (), "-i"), names_in(asked["output"] or (), "-o")
        with Transfer(self._shell, inputs, outputs) as transfer:
            more = {**self._as_this_cell(), "transfer": transfer}
            alone = self._is_first()
            result = gpu.run(
                cell, label=label, wait=wait, wait_timeout_s=timeout_s, alone=alone, retry=retry, options=more
            )
            transfer.finish(result)
        return result

    def _as_this_cell(self) -> dict[str, Any]:
        """How the frontend wants its cell to be run, for the part that runs in the GPU process."""
        asked = self._request_content()
        stored = bool(asked.get("store_history", True)) and not asked.get("silent", False)
        return {
            # A cell that is not stored has no number of its own: the GPU process would forget the one before.
            "metadata": {numbering.KEY: self._shell.displayhook.prompt_count} if stored else {},
            "silent": bool(asked.get("silent", False)),
            "store_history": stored,
            "allow_stdin": bool(asked.get("allow_stdin", True)),
        }

    def _is_first(self) -> bool:
        """Whether nothing of the notebook's cell can have been put out yet."""
        code = self._request_content().get("code", "")
        return isinstance(code, str) and bool(_GPU_CELL.match(code))

    def _request_content(self) -> Mapping[str, Any]:
        parent: Any = getattr(self._shell, "kernel").get_parent("shell")  # noqa: B009 - only a kernel's shell has one
        content: Mapping[str, Any] = parent.get("content", {})
        return content

    def _command(self, words: list[str]) -> GpuStatus | None:
        commands: dict[str, Callable[[list[str]], GpuStatus | None]] = {
            "status": self._status,
            "request": self._request,
            "release": self._release,
            "restart": self._restart,
            "suspend": self._suspend,
            "resume": self._resume,
            "keep": self._keep,
            "trim": self._trim,
            "save": self._save,
            "vars": self._vars,
            "forget": self._forget,
            "restore": self._restore,
            "recompute": lambda words: self._recompute(" ".join(words)),
            "auto": self._switch_auto,
            "log": self._log,
            "doctor": self._doctor,
        }
        name, *rest = words or ["status"]
        if name in ("--help", "-h", "help"):
            print(inspect.cleandoc(self._help_text or ""))  # noqa: T201 - the help was asked for
            return None
        if name not in commands:
            raise GpuUsageError(f"there is no %gpu {printable(name)}: {options.advice(name, list(commands))}")
        return commands[name](rest)

    def _left(self, work: Coroutine[Any, Any, _Value], what_of_it: str) -> _Value:
        """Do `work`, which Ctrl-C may leave alone rather than end: its user reads `what_of_it`."""
        try:
            return self._gpu.call(work)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"nobody waits any more: {what_of_it}") from None

    def _status(self, words: list[str]) -> GpuStatus:
        options.no_more("status", words)
        return self._gpu.status()

    def _request(self, words: list[str]) -> GpuStatus:
        wanted = options.of_request(words)
        gpu = self._gpu
        gpu.call(gpu.supervisor.keeper.coming_back.ask_again())
        self._left(
            gpu.supervisor.place.request(wanted), "what was asked for may be granted all the same; %gpu shows it"
        )
        return gpu.status()

    def _release(self, words: list[str]) -> None:
        options.no_more("release", words)
        gpu = self._gpu
        told = "%gpu log says whether the GPU was released before that"
        if not self._left(gpu.supervisor.place.release(), told):
            raise GpuUnavailable("this notebook holds no GPU; there is nothing to release.")
        self._tell_of_leaving("Released")

    def _restart(self, words: list[str]) -> None:
        options.no_more("restart", words)
        self._left(self._gpu.supervisor.place.restart(), "the restart had begun, and is carried out all the same")
        print("Restarted: the next GPU cell begins without variables.")  # noqa: T201 - what was asked for

    def _suspend(self, words: list[str]) -> None:
        options.no_more("suspend", words)
        self._left(self._gpu.supervisor.place.suspend(), "a suspend that had begun goes on; %gpu shows that")
        self._tell_of_leaving("Suspended")

    def _tell_of_leaving(self, done: str) -> None:
        saved = self._gpu.supervisor.keeper.saved
        manifest = None if saved is None else saved.manifest
        print(variables.told_of_leaving(done, manifest))  # noqa: T201 - what was asked for

    def _resume(self, words: list[str]) -> GpuStatus:
        options.no_more("resume", words)
        gpu = self._gpu
        gpu.call(gpu.supervisor.place.resume())
        return gpu.status()

    def _keep(self, words: list[str]) -> None:
        keep_s = None if words == ["off"] else options.duration(words)
        gpu = self._gpu
        entry = gpu.call(gpu.supervisor.place.keep(keep_s))
        if entry["keep_until"] is None:
            print("No longer kept: while no cell runs, others may have the GPU.")  # noqa: T201 - what was asked for
        else:
            until = clock_time(entry["keep_until"])
            print(f"Kept until {until}: before, only a guarantee of somebody else takes the GPU.")  # noqa: T201

    def _save(self, words: list[str]) -> None:
        options.no_more("save", words)
        gpu = self._gpu
        print(variables.told_of_save(gpu.call(gpu.supervisor.save()).manifest))  # noqa: T201 - what was asked for

    def _trim(self, words: list[str]) -> None:
        options.no_more("trim", words)
        gpu = self._gpu
        print(variables.told_of_trim(gpu.call(gpu.supervisor.keeper.trim())))  # noqa: T201 - what was asked for

    def _doctor(self, words: list[str]) -> None:
        options.no_more("doctor", words)
        # Looks into the environment by itself, and must work where nothing else does.
        from nls_scheduler.cli.doctor import render
        from nls_scheduler.doctor import examine

        print(render(examine(None, os.environ)))  # noqa: T201 - the findings were asked for

    def _vars(self, words: list[str]) -> None:
        options.no_more("vars", words)
        gpu = self._gpu
        gpu.call(gpu.supervisor.settle())
        keeper = gpu.supervisor.keeper
        manifest = None if keeper.saved is None else keeper.saved.manifest
        not_back = keeper.coming_back.not_back
        why_not = gpu.supervisor.why_not_saved if keeper.completed.unsaved else None
        print(variables.table(manifest, not_back, keeper.lineage.maker, why_not))  # noqa: T201 - what was asked for

    def _forget(self, words: list[str]) -> None:
        gpu = self._gpu
        told = variables.told_of_forgetting(words, gpu.supervisor.keeper.coming_back.not_back)
        gpu.call(gpu.supervisor.forget(words))
        print(told)  # noqa: T201 - what was asked for

    def _restore(self, words: list[str]) -> None:
        gpu = self._gpu
        lasting = gpu.supervisor.lasting
        match words:
            case ["list"]:
                told = gpu.call(lasting.list())
            case ["drop"] | ["drop", _]:
                told = gpu.call(lasting.drop(words[1] if words[1:] else None))
            case ["earlier"] | ["earlier", _]:
                told = gpu.call(lasting.restore(words[1] if words[1:] else None, earlier=True))
            case [] | [_]:
                told = gpu.call(lasting.restore(words[0] if words else None))
            case _:
                told = "earlier, list or drop, each with one notebook at most"
                raise GpuUsageError(f"%gpu restore takes one notebook, {told}, and got {' '.join(words)!r}.")
        print(told)  # noqa: T201 - what was asked for

    def _recompute(self, text: str) -> None:
        """The rest of the line as it is written: an expression is no list of words."""
        gpu = self._gpu
        recipe = variables.parse_recipe(text) if text.strip() else None
        print(variables.told_of_recipes(gpu.call(gpu.supervisor.recompute(recipe))))  # noqa: T201 - was asked for

    def _switch_auto(self, words: list[str]) -> None:
        gpu = self._gpu
        magics = self._magics
        match words:
            case ["on"] if not magics.auto:
                magics.auto = True
                names = len(self._shell.run_line_magic("who_ls", "") or ())
                stay = _stay(names, "kernel; %%local")
                print(f"From the next cell on, every cell runs in the GPU process.{stay}")  # noqa: T201
            case ["off"] if magics.auto:
                magics.auto = False
                gpu.call(gpu.supervisor.settle())
                saved = gpu.supervisor.keeper.saved
                manifest = saved.manifest if saved else None
                names = len((*manifest.variables, *manifest.missing, *manifest.recomputed)) if manifest else 0
                stay = _stay(names, "GPU process; %%gpu")
                print(f"From the next cell on, cells run in the notebook's kernel.{stay}")  # noqa: T201
            case ["on" | "off"] | []:
                print(f"Auto mode is {'on' if magics.auto else 'off'}.")  # noqa: T201 - what was asked for
            case _:
                raise GpuUsageError(f"%gpu auto takes on or off, and got {' '.join(words)!r}.")

    def _log(self, words: list[str]) -> None:
        options.no_more("log", words)
        print(self._gpu.supervisor.log.as_text())  # noqa: T201 - the log was asked for


def _stay(names: int, where: str) -> str:
    if not names:
        return ""
    verb, them = ("stays", "it") if names == 1 else ("stay", "them")
    return f" {count(names, 'name')} {verb} in the {where} reaches {them}."
