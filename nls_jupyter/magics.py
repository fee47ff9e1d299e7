"""`%gpu` and `%%gpu`: parse, call, render."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell  # noqa: TC002 - traitlets reads it
from IPython.core.magic import Magics, cell_magic, line_cell_magic, magics_class
from traitlets import Bool, Float, Unicode, observe

from nls_jupyter import numbering, options, variables
from nls_jupyter.auto import AutoMode
from nls_jupyter.auto_cells import without_local
from nls_jupyter.completer import Completer
from nls_jupyter.errors import GpuUnavailable, GpuUsageError, show_as_sentence
from nls_jupyter.mode_comm import ModeComm
from nls_jupyter.notebook import NotebookGpu
from nls_jupyter.notices import clock_time, count
from nls_jupyter.saving import WITHIN_S
from nls_jupyter.standby import StandbySettings, parse_memory
from nls_jupyter.transfer import Transfer, names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_jupyter.relay import CellResult
    from nls_jupyter.status_view import GpuStatus


@magics_class
class GpuMagics(Magics):
    """The notebook's way to its GPU."""

    shell: InteractiveShell

    request = Unicode(help="Guaranteed share where `%gpu request` names none, such as 0.5 or 8GiB.").tag(config=True)
    limit = Unicode(help="Most memory where none is named.").tag(config=True)
    queue = Unicode(help="Whose quota it counts in where `%gpu request` names none.").tag(config=True)
    retry = Bool(
        default_value=False, help="Run every GPU cell again whose GPU was taken away, as `%%gpu --retry` does for one."
    ).tag(config=True)

    save_within = Float(
        WITHIN_S,
        min=0.0,
        help="Seconds of cells that a killed process takes with it at most, beside the cell that runs. What was put "
        "off for so long is saved whatever that costs, by a copy of the process while cells go on; inf: only saves "
        "that cost little, or that are made while no cell runs.",
    ).tag(config=True)
    standby_memory = Unicode(
        "0.05",
        help="Host memory for a GPU process that stands ready with the notebook's imports: a share of what the machine "
        "(or its cgroup) has left, or bytes such as 2GiB. 0: none. There is none either where less than 1 GiB is left.",
    ).tag(config=True)
    standby_idle = Float(3600.0, help="Seconds without a cell after which that process is ended.").tag(config=True)
    auto = Bool(help="Send every cell of a Jupyter kernel to its GPU process, as `%gpu auto on` does.").tag(config=True)

    # Here, because reading the configuration switches already.
    _gpu: NotebookGpu | None = None
    _auto: AutoMode | None = None
    _mode_comm: ModeComm | None = None

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell=shell)
        shell.input_transformers_cleanup.append(without_local)
        Completer(options.WORDS, options.CELL_WORDS).install(shell)
        if (kernel := getattr(shell, "kernel", None)) is not None:
            self._mode_comm = ModeComm(kernel, lambda: self.auto)
        if self.auto:
            self._switch()

    @observe("auto")
    def _switch(self, _: object = None) -> None:
        if getattr(self.shell, "kernel", None) is None:
            return  # a plain IPython reads the same configuration, and %gpu says there what is missing
        if self.auto:
            self._auto_mode.switch_on()
        else:
            self._auto_mode.switch_off()
        if self._mode_comm is not None:
            self._mode_comm.tell()

    @property
    def gpu_of_notebook(self) -> NotebookGpu:
        """Made at first use; needs a Jupyter kernel."""
        kernel = getattr(self.shell, "kernel", None)
        if kernel is None:
            raise GpuUnavailable("%gpu works in Jupyter kernels; this is a plain IPython. `nls run` serves commands.")
        if self._gpu is None:
            self._gpu = NotebookGpu(kernel, self._defaults, self._line, self._standby_settings())
            self._save_in_time()
            self._auto_mode.answer_questions()
        if not self._gpu.belongs_here:
            raise GpuUnavailable("this is a forked child of the notebook's kernel; only the kernel itself has the GPU.")
        return self._gpu

    @observe("save_within")
    def _save_in_time(self, _: object = None) -> None:
        if self._gpu is not None:
            self._gpu.supervisor.keeper.saves.within_s = self.save_within

    def _standby_settings(self) -> StandbySettings:
        text = os.environ.get("NLS_STANDBY_MEMORY") or self.standby_memory
        try:
            return StandbySettings(parse_memory(text), self.standby_idle)
        except ValueError as error:
            raise GpuUsageError(f"NLS_STANDBY_MEMORY or GpuMagics.standby_memory: {error}") from None

    @property
    def _auto_mode(self) -> AutoMode:
        if self._auto is None:
            kernel: Any = getattr(self.shell, "kernel")  # noqa: B009 - only a kernel's shell has one
            self._auto = AutoMode(kernel, lambda: self.gpu_of_notebook, lambda: self.retry)
        return self._auto

    def _defaults(self) -> dict[str, str]:
        """What a new workload asks for where its user does not say."""
        wanted = {
            "request": self.request or os.environ.get("NLS_REQUEST"),
            "limit": self.limit or os.environ.get("NLS_LIMIT"),
            "queue": self.queue or os.environ.get("NLS_QUEUE"),
            "name": _notebook_name(),
        }
        return {key: value for key, value in wanted.items() if value}

    @line_cell_magic
    def gpu(self, line: str, cell: str | None = None) -> GpuStatus | CellResult | None:
        """Run a cell in the GPU process, or look after it.

        %%gpu [-i A,B] [-o C] [--no-wait] [--timeout S] [--retry]
                                             run this cell in the notebook's GPU process: -i copies variables there
                                             before, -o copies variables back after it succeeded
        %gpu                                 where this notebook is, and everybody else
        %gpu request SIZE [--limit SIZE] [--gpus N] [--pool NAMES] [--priority N] [--queue NAME]
                                             [--name NAME]
        %gpu release                         give the GPU back; the variables stay saved
        %gpu restart                         a new, empty GPU process
        %gpu suspend                         off the GPU, variables in host memory, until the next cell
        %gpu resume                          back onto a GPU without waiting for the next cell
        %gpu keep 2h                         hold the GPU for so long although no cell runs (90s, 10min, 1d)
        %gpu keep off                        hold it no longer
        %gpu trim                            give back GPU memory that is cached and that no variable uses
        %gpu save                            save the variables now
        %gpu vars                            the variables in the GPU process: saved or not, and why not
        %gpu forget NAME [NAME ...]          give up what is saved of a variable that could not be restored
        %gpu recompute NAME: EXPRESSION      compute NAME again instead of saving it, for what cannot be saved
        %gpu auto on|off                     every cell in the GPU process, or only %%gpu cells
        %gpu log                             what happened, when and why
        %gpu doctor                          what is wrong with this machine's set-up, and what to do

        SIZE is a fraction of a GPU (0.5) or bytes (8GiB, 500M).
        In auto mode, a cell that begins with %%local runs in the notebook's kernel.
        """
        if cell is None:
            return self._line(line)
        try:
            return self._run_cell(options.split(line), cell)
        except options.HelpShown:
            return None
        except KeyboardInterrupt as interrupt:
            show_as_sentence(interrupt)
            raise

    def _line(self, line: str) -> GpuStatus | None:
        try:
            return self._command(options.split(line))
        except options.HelpShown:
            return None

    def _run_cell(self, words: list[str], cell: str) -> CellResult | None:
        asked = options.of_cell(words)
        gpu = self.gpu_of_notebook
        label = f"[{self.shell.displayhook.prompt_count}]"
        wait, timeout_s = not asked["no_wait"], asked["timeout"]
        retry = asked["retry"] or self.retry
        inputs, outputs = names_in(asked["input"] or (), "-i"), names_in(asked["output"] or (), "-o")
        with Transfer(self.shell, inputs, outputs) as transfer:
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
            "stop_on_error": False,
            # A cell that is not stored has no number of its own: the GPU process would forget the one before.
            "metadata": {numbering.KEY: self.shell.displayhook.prompt_count} if stored else {},
            "silent": bool(asked.get("silent", False)),
            "store_history": stored,
            "allow_stdin": bool(asked.get("allow_stdin", True)),
        }

    @cell_magic
    def local(self, line: str, cell: str) -> None:
        """Run a cell in the notebook's kernel also in auto mode, with the kernel's own names."""
        if line.strip():
            raise GpuUsageError(f"%%local takes nothing more, and got {line.strip()!r}.")
        # Only below another cell magic; a first line is taken away before.
        self.shell.run_cell(cell).raise_error()  # type: ignore[no-untyped-call]

    def _is_first(self) -> bool:
        """Whether nothing of the notebook's cell can have been put out yet: it is one with a cell magic."""
        code = self._request_content().get("code", "")
        return isinstance(code, str) and code.lstrip().startswith("%%")

    def _request_content(self) -> Mapping[str, Any]:
        parent: Any = getattr(self.shell, "kernel").get_parent("shell")  # noqa: B009 - only a kernel's shell has one
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
            "recompute": lambda words: self._recompute(" ".join(words)),
            "auto": self._switch_auto,
            "log": self._log,
            "doctor": self._doctor,
        }
        name, *rest = words or ["status"]
        if name in ("--help", "-h", "help"):
            print(GpuMagics.gpu.__doc__)  # noqa: T201 - the help was asked for
            return None
        if name not in commands:
            raise GpuUsageError(f"there is no %gpu {name}: {options.advice(name, list(commands))}")
        return commands[name](rest)

    def _status(self, words: list[str]) -> GpuStatus:
        options.no_more("status", words)
        return self.gpu_of_notebook.status()

    def _request(self, words: list[str]) -> GpuStatus:
        wanted = options.of_request(words)
        gpu = self.gpu_of_notebook
        gpu.call(gpu.supervisor.keeper.ask_again())
        gpu.call(gpu.supervisor.place.request(wanted))
        return gpu.status()

    def _release(self, words: list[str]) -> None:
        options.no_more("release", words)
        gpu = self.gpu_of_notebook
        if not gpu.call(gpu.supervisor.place.release()):
            raise GpuUnavailable("this notebook holds no GPU; there is nothing to release.")

    def _restart(self, words: list[str]) -> None:
        options.no_more("restart", words)
        gpu = self.gpu_of_notebook
        gpu.call(gpu.supervisor.place.restart())

    def _suspend(self, words: list[str]) -> None:
        options.no_more("suspend", words)
        gpu = self.gpu_of_notebook
        gpu.call(gpu.supervisor.place.suspend())
        print("Suspended: the variables are in host memory and come back with the next GPU cell.")  # noqa: T201

    def _resume(self, words: list[str]) -> GpuStatus:
        options.no_more("resume", words)
        gpu = self.gpu_of_notebook
        gpu.call(gpu.supervisor.place.resume())
        return gpu.status()

    def _keep(self, words: list[str]) -> None:
        keep_s = None if words == ["off"] else options.duration(words)
        gpu = self.gpu_of_notebook
        entry = gpu.call(gpu.supervisor.place.keep(keep_s))
        if entry["keep_until"] is None:
            print("No longer kept: while no cell runs, others may have the GPU.")  # noqa: T201 - what was asked for
        else:
            until = clock_time(entry["keep_until"])
            print(f"Kept until {until}: before, only a guarantee of somebody else takes the GPU.")  # noqa: T201

    def _save(self, words: list[str]) -> None:
        options.no_more("save", words)
        gpu = self.gpu_of_notebook
        print(variables.told_of_save(gpu.call(gpu.supervisor.save()).manifest))  # noqa: T201 - what was asked for

    def _trim(self, words: list[str]) -> None:
        options.no_more("trim", words)
        gpu = self.gpu_of_notebook
        print(variables.told_of_trim(gpu.call(gpu.supervisor.keeper.trim())))  # noqa: T201 - what was asked for

    def _doctor(self, words: list[str]) -> None:
        options.no_more("doctor", words)
        # Looks into the environment by itself, and must work where nothing else does.
        from nls_scheduler.cli.doctor import render
        from nls_scheduler.doctor import examine

        print(render(examine(None, os.environ)))  # noqa: T201 - the findings were asked for

    def _vars(self, words: list[str]) -> None:
        options.no_more("vars", words)
        gpu = self.gpu_of_notebook
        gpu.call(gpu.supervisor.settle())
        saved = gpu.supervisor.keeper.saved
        not_back = gpu.supervisor.keeper.not_back
        print(variables.table(None if saved is None else saved.manifest, not_back))  # noqa: T201 - what was asked for

    def _forget(self, words: list[str]) -> None:
        gpu = self.gpu_of_notebook
        told = variables.told_of_forgetting(words, gpu.supervisor.keeper.not_back)
        gpu.call(gpu.supervisor.forget(words))
        print(told)  # noqa: T201 - what was asked for

    def _recompute(self, text: str) -> None:
        """The rest of the line as it is written: an expression is no list of words."""
        gpu = self.gpu_of_notebook
        recipe = variables.parse_recipe(text) if text.strip() else None
        print(variables.told_of_recipes(gpu.call(gpu.supervisor.recompute(recipe))))  # noqa: T201 - was asked for

    def _switch_auto(self, words: list[str]) -> None:
        gpu = self.gpu_of_notebook
        mode = self._auto_mode
        match words:
            case ["on"] if not mode.on:
                self.auto = True
                names = len(self.shell.run_line_magic("who_ls", "") or ())
                stay = _stay(names, "kernel; %%local")
                print(f"From the next cell on, every cell runs in the GPU process.{stay}")  # noqa: T201
            case ["off"] if mode.on:
                self.auto = False
                gpu.call(gpu.supervisor.settle())
                saved = gpu.supervisor.keeper.saved
                names = len(saved.manifest.variables) + len(saved.manifest.missing) if saved else 0
                stay = _stay(names, "GPU process; %%gpu")
                print(f"From the next cell on, cells run in the notebook's kernel.{stay}")  # noqa: T201
            case ["on" | "off"] | []:
                print(f"Auto mode is {'on' if mode.on else 'off'}.")  # noqa: T201 - what was asked for
            case _:
                raise GpuUsageError(f"%gpu auto takes on or off, and got {' '.join(words)!r}.")

    def _log(self, words: list[str]) -> None:
        options.no_more("log", words)
        print(self.gpu_of_notebook.supervisor.log.as_text())  # noqa: T201 - the log was asked for


def _stay(names: int, where: str) -> str:
    if not names:
        return ""
    verb, them = ("stays", "it") if names == 1 else ("stay", "them")
    return f" {count(names, 'name')} {verb} in the {where} reaches {them}."


def _notebook_name() -> str | None:
    """The notebook's path as Jupyter Server tells its kernels; consoles have none."""
    session = os.environ.get("JPY_SESSION_NAME")
    return os.path.basename(session) if session else None  # noqa: PTH119 - a URL-like path, not one of this machine
