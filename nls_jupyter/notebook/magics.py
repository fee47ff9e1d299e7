"""`%gpu` and `%%gpu`: their names and their configuration.

Every kernel of the environment loads this module, and most never use a GPU: it imports what is small. The rest comes
with its first use, in the methods that begin with an import; `completer` does the same. What a kernel has loaded before
is listed in `tests/unit/test_extension.py`, and `benchmarks/light_start.py` says what it costs.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell  # noqa: TC002 - traitlets reads it
from IPython.core.magic import Magics, cell_magic, line_cell_magic, magics_class
from traitlets import Bool, Float, TraitError, Unicode, observe, validate
from traitlets.config import Config

from nls_jupyter.between.errors import GpuUnavailable, GpuUsageError, show_as_sentence
from nls_jupyter.notebook import completer
from nls_jupyter.notebook.auto_cells import without_local
from nls_jupyter.notebook.mode_comm import ModeComm
from nls_jupyter.notebook.set_up import SetUp
from nls_jupyter.supervisor.defaults import WITHIN_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traitlets import Bunch

    from nls_jupyter.between.cell_result import CellResult
    from nls_jupyter.notebook.auto import AutoMode
    from nls_jupyter.notebook.commands import Commands
    from nls_jupyter.notebook.notebook_gpu import NotebookGpu
    from nls_jupyter.notebook.status_view import GpuStatus
    from nls_jupyter.saved_state.on_volume import KeptFiles
    from nls_jupyter.supervisor.ahead import Ahead
    from nls_jupyter.supervisor.standby_settings import StandbySettings


def _written() -> int:
    try:
        return os.stat(__file__).st_mtime_ns  # noqa: PTH116 - pathlib is slower, and each kernel does this
    except OSError:
        return 0


_WRITTEN = _written()


@contextlib.contextmanager
def _of_one_version() -> Iterator[None]:
    """At the first use: what is imported now may be of another version than this module, and need not fit it."""
    try:
        yield
    except (ImportError, AttributeError, TypeError) as error:
        if _written() == _WRITTEN:
            raise
        raise GpuUnavailable(
            "nls-jupyter was replaced after this kernel had begun, and the new version does not fit what this kernel "
            "has loaded: restart it. It has no variables on a GPU."
        ) from error


class _Size(Unicode[str, Any]):
    """A size as people write it; a number is one, too."""

    info_text = "a size such as 0.5 or '8GiB'"

    def validate(self, obj: Any, value: Any) -> Any:
        """Called with what is to be set. Raises TraitError."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value) if value else "0"
        return super().validate(obj, value)


@magics_class
class GpuMagics(Magics):
    """The notebook's way to its GPU."""

    shell: InteractiveShell

    request = _Size(help="Guaranteed share where `%gpu request` names none, such as 0.5 or 8GiB.").tag(config=True)
    limit = _Size(help="Most memory where none is named.").tag(config=True)
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
    standby_memory = _Size(
        "0.05",
        help="Host memory for a GPU process that stands ready with the notebook's imports: a share of what the machine "
        "(or its cgroup) has left, or bytes such as 2GiB. 0: none. There is none either where less than 1 GiB is left.",
    ).tag(config=True)
    standby_idle = Float(3600.0, help="Seconds without a cell after which that process is ended.").tag(config=True)
    kept_folder = Unicode(
        help="Folder that outlives this machine, such as one on the user's volume: when the kernel is told to end, the "
        "GPU process's variables are kept there, and `%gpu restore` brings them back in the notebook's next kernel. "
        "Empty: they end with the kernel."
    ).tag(config=True)
    auto = Bool(help="Send every cell of a Jupyter kernel to its GPU process, as `%gpu auto on` does.").tag(config=True)

    # Here, because reading the configuration switches already.
    _gpu: NotebookGpu | None = None
    _auto: AutoMode | None = None
    _ahead: Ahead | None = None
    _mode_comm: ModeComm | None = None
    _set_up: SetUp | None = None

    def __init__(self, shell: InteractiveShell) -> None:
        self._first_use = threading.RLock()  # threads of the user's may come to it at once
        self._not_set: list[str] = []
        super().__init__(shell=shell, config=Config())
        if getattr(shell, "kernel", None) is not None:
            self._set_up = SetUp(shell, lambda: self._gpu is not None)
        self._configure(shell.config.GpuMagics)
        shell.input_transformers_cleanup.append(without_local)
        completer.install(shell)
        if (kernel := getattr(shell, "kernel", None)) is not None:
            self._mode_comm = ModeComm(kernel, lambda: self.auto)
        if self.auto:
            self._switch()

    def _configure(self, settings: Config) -> None:
        """One by one: what cannot be leaves the others, and `%gpu`, where they are."""
        known = self.trait_names(config=True)
        for name, value in settings.items():
            try:
                if name in known:
                    self.update_config(Config({"GpuMagics": {name: value}}))
                    continue
                said = f"is no setting: {_advice(name, known)}"
            except TraitError as error:
                said = f"is left as it was: {str(error).rstrip('.')}."
            self._not_set.append(f"c.GpuMagics.{name} {said}")
            print(f"GPU: {self._not_set[-1]}", file=sys.stderr, flush=True)  # noqa: T201 - of a console, or its server

    @validate("auto")
    def _can_be_switched(self, proposal: Bunch) -> bool:
        """What carries it out is imported before it is on: an import that is interrupted leaves it as it was."""
        if proposal.value and getattr(self.shell, "kernel", None) is not None:
            self._auto_mode  # noqa: B018 - made at first use
        return bool(proposal.value)

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
        with self._first_use, _of_one_version():
            if self._gpu is None:
                try:
                    from nls_scheduler.wire.errors import out_of_files

                    self._gpu = self._made_gpu(kernel)
                except OSError as error:
                    raise GpuUnavailable(str(out_of_files(error) or error)) from None
                self._save_in_time()
                self._auto_mode.answer_questions()
        if not self._gpu.belongs_here:
            raise GpuUnavailable("this is a forked child of the notebook's kernel; only the kernel itself has the GPU.")
        return self._gpu

    def _made_gpu(self, kernel: Any) -> NotebookGpu:
        """All that is imported is there before anything is made: a Ctrl-C leaves nothing half done."""
        from nls_jupyter.notebook.notebook_gpu import NotebookGpu
        from nls_jupyter.saved_state.parallel import wanted_threads

        try:
            wanted_threads()  # which its GPU process takes from here
        except ValueError as error:
            raise GpuUsageError(str(error)) from None
        _, command, standby = self._auto_mode, self._commands.line, self._standby_settings()
        gpu = NotebookGpu(kernel, self._defaults, command, standby, self._kept_files(), self._ahead)
        for sentence in self._not_set:
            gpu.supervisor.log.add_once(sentence)
        return gpu

    def start_ahead(self) -> None:
        """Have the first GPU process begin with the kernel, whose every cell goes there; called when that starts."""
        from nls_jupyter.supervisor.ahead import Ahead

        with contextlib.suppress(GpuUsageError):  # its user reads it with the first cell
            self._ahead = Ahead(self._standby_settings())

    def _kept_files(self) -> KeptFiles | None:
        from nls_jupyter.saved_state.on_volume import KeptFiles

        folder = self.kept_folder or os.environ.get("NLS_KEPT_FOLDER")
        notebook = os.environ.get("JPY_SESSION_NAME") or self._path_in_vs_code
        return KeptFiles(Path(folder).expanduser(), notebook) if folder and notebook else None

    @property
    def _path_in_vs_code(self) -> str:
        return str(self.shell.user_ns.get("__vsc_ipynb_file__") or "")

    @observe("save_within")
    def _save_in_time(self, _: object = None) -> None:
        if self._gpu is not None:
            self._gpu.supervisor.keeper.saves.within_s = self.save_within

    def _standby_settings(self) -> StandbySettings:
        from nls_jupyter.supervisor.standby_settings import StandbySettings, parse_memory

        text = os.environ.get("NLS_STANDBY_MEMORY") or self.standby_memory
        try:
            return StandbySettings(parse_memory(text), self.standby_idle)
        except ValueError as error:
            raise GpuUsageError(f"NLS_STANDBY_MEMORY or GpuMagics.standby_memory: {error}") from None

    @property
    def _auto_mode(self) -> AutoMode:
        with self._first_use:
            if self._auto is None:
                from nls_jupyter.notebook.auto import AutoMode

                kernel: Any = getattr(self.shell, "kernel")  # noqa: B009 - only a kernel's shell has one
                assert self._set_up is not None  # noqa: S101 - there is a kernel
                self._auto = AutoMode(kernel, lambda: self.gpu_of_notebook, lambda: self.retry, self._set_up)
            return self._auto

    @property
    def _commands(self) -> Commands:
        with _of_one_version():
            from nls_jupyter.notebook.commands import Commands

            return Commands(self, GpuMagics.gpu.__doc__)

    def _defaults(self) -> dict[str, str]:
        """What a new workload asks for where its user does not say."""
        wanted = {
            "request": self.request or os.environ.get("NLS_REQUEST"),
            "limit": self.limit or os.environ.get("NLS_LIMIT"),
            "queue": self.queue or os.environ.get("NLS_QUEUE"),
            "name": _notebook_name(self._path_in_vs_code),
        }
        return {key: value for key, value in wanted.items() if value}

    @line_cell_magic
    def gpu(self, line: str, cell: str | None = None) -> GpuStatus | CellResult | None:
        """Run a cell in the GPU process, or look after it.

        %%gpu [-i A,B] [-o C] [--no-wait] [--timeout S] [--retry]
                                             run this cell in the notebook's GPU process: -i copies variables there
                                             before, -o copies variables back after it succeeded
        %gpu                                 where this notebook is, and everybody else
        %gpu request [SIZE] [--limit SIZE] [--gpus N] [--pool NAMES] [--priority N] [--queue NAME]
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
        %gpu restore [NOTEBOOK]              bring back what an earlier kernel of this notebook kept when it was ended
                                             (c.GpuMagics.kept_folder), or another notebook's, as `list` names it
        %gpu restore earlier [NOTEBOOK]      what was kept before that, and was not brought back by the next kernel
        %gpu restore list                    what is kept, of which notebooks
        %gpu restore drop [NOTEBOOK]         remove it
        %gpu recompute NAME: EXPRESSION      compute NAME again instead of saving it, for what cannot be saved
        %gpu auto on|off                     every cell in the GPU process, or only %%gpu cells
        %gpu log                             what happened, when and why
        %gpu doctor                          what is wrong with this machine's set-up, and what to do

        SIZE is a fraction of a GPU (0.5) or bytes (8GiB, 500M).
        In auto mode, a cell that begins with %%local runs in the notebook's kernel.
        """
        try:
            return self._commands.line(line) if cell is None else self._commands.cell(line, cell)
        except KeyboardInterrupt as interrupt:
            show_as_sentence(interrupt)
            raise

    @cell_magic
    def local(self, line: str, cell: str) -> None:
        """Run a cell in the notebook's kernel also in auto mode, with the kernel's own names."""
        if line.strip():
            raise GpuUsageError(f"%%local takes nothing more, and got {line.strip()!r}.")
        # Only below another cell magic; a first line is taken away before.
        self.shell.run_cell(cell).raise_error()  # type: ignore[no-untyped-call]


def _advice(name: str, known: list[str]) -> str:
    from nls_scheduler.units.nearest import nearest

    if close := nearest(name, known):
        return f"did you mean {close}?"
    return "`%config GpuMagics` shows those that there are."


def _notebook_name(in_vs_code: str = "") -> str | None:
    """The notebook's name as Jupyter Server tells its kernels, or VS Code, or as a tool was told that executes it."""
    import re

    from nls_scheduler.wire.protocol import as_name

    session = os.environ.get("JPY_SESSION_NAME") or in_vs_code or _executed_by(os.getppid())
    name = os.path.basename(session)  # noqa: PTH119 - a URL-like path, not one of this machine
    # JupyterLab makes what it calls "Console 1" unique.
    return as_name(re.sub(r"^(console-\d+)-[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$", r"\1", name)) or None


def _executed_by(pid: int) -> str:
    """The only notebook that process was started with, as nbconvert is, or papermill's first; else nothing."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    found = [word for word in words if word.endswith(".ipynb")]
    goes_elsewhere = any(Path(word).name == "papermill" for word in words)  # its second is what it writes
    return found[0] if len(found) == 1 or (found and goes_elsewhere) else ""
