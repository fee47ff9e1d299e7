"""Auto mode: every cell of the notebook goes to the GPU process, and the notebook's kernel answers for it.

It is put in place on the running kernel *instance*, so that it is the same for `%gpu auto on` in any IPython kernel and
for the kernelspec "Python 3 (GPU)", and so that taking it away leaves the kernel as it was.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import numbering
from nls_jupyter.between.errors import GpuError, GpuUnavailable, show_as_sentence
from nls_jupyter.between.seams import ALLOW_STDIN, EXECUTE_SLEEP
from nls_jupyter.notebook.auto_cells import asks_in_kernel, is_gpu_cell, stays_in_kernel
from nls_jupyter.notebook.cells import Ask
from nls_jupyter.notebook.questions import refusal
from nls_jupyter.notebook.topics import topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ipykernel.ipkernel import IPythonKernel

    from nls_jupyter.notebook.notebook_gpu import NotebookGpu
    from nls_jupyter.notebook.set_up import SetUp
    from nls_jupyter.supervisor.pending import Message

_log = logging.getLogger(__name__)
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class AutoMode:
    """What the kernel does instead of its own in a notebook that uses the GPU process.

    Completion and help of `%%gpu` cells, and questions for all widgets, go to the GPU process in every notebook, from
    the first use of `%gpu` on (`answer_questions`); the rest is auto mode's, between `switch_on` and `switch_off`.

    Attributes:
        on: whether every cell goes to the GPU process.
    """

    def __init__(
        self,
        kernel: IPythonKernel,
        gpu: Callable[[], NotebookGpu],
        retry: Callable[[], bool],
        set_up: SetUp,
    ) -> None:
        """`gpu` makes the notebook's GPU at first use; `retry` tells whether a cell that loses it runs again."""
        self._retry = retry
        self._set_up = set_up
        self._kernel: Any = kernel  # much of ipykernel is untyped
        self._gpu = gpu
        self._questions = _Replaced(kernel)
        self._rest = _Replaced(kernel)
        self._own_comm_open: Any = None
        self._outputs_first_s: float = EXECUTE_SLEEP.of(kernel, 0.0)
        self.on = False

    def answer_questions(self) -> None:
        """Have completion and help look into the GPU process where they belong there. Idempotent."""
        self._questions.put("do_complete", self._complete)
        self._questions.put("do_inspect", self._inspect)
        if self._own_comm_open is None:
            handlers = self._kernel.shell_handlers
            self._own_comm_open = handlers["comm_open"]
            handlers["comm_open"] = self._comm_open

    def switch_on(self) -> None:
        """From the next cell on. Idempotent; starts nothing."""
        self.answer_questions()
        self._rest.put("do_execute", self._execute)
        self._rest.put("do_debug_request", self._debug)
        self.on = True

    def switch_off(self) -> None:
        """From the next cell on. Idempotent; ends nothing."""
        if self.on:
            EXECUTE_SLEEP.put(self._kernel, self._outputs_first_s)
            self._rest.take_away()
        self.on = False

    # Cells

    async def _execute(
        self,
        code: str,
        silent: bool,  # noqa: FBT001 - ipykernel's signature
        store_history: bool = True,  # noqa: FBT001, FBT002
        user_expressions: Mapping[str, str] | None = None,
        allow_stdin: bool = False,  # noqa: FBT001, FBT002
        *,
        cell_meta: Mapping[str, Any] | None = None,
        cell_id: str | None = None,
    ) -> Message:
        """Instead of `Kernel.do_execute`: returns the reply's content."""
        EXECUTE_SLEEP.put(self._kernel, self._outputs_first_s)
        own = functools.partial(
            self._rest.own("do_execute"),
            code, silent, store_history, user_expressions, allow_stdin, cell_meta=cell_meta, cell_id=cell_id,
        )  # fmt: skip
        content: Message | None
        if stays_in_kernel(code) and not (user_expressions and not code.strip()):
            content = await own()
            return content
        options = {
            "silent": silent,
            "store_history": store_history,
            "user_expressions": user_expressions or {},
            "allow_stdin": allow_stdin,
        }
        content = self._run(code, options, dict(cell_meta or {}))
        if content is None:
            with _without_gpus():
                content = await own()
        return content

    def _run(self, code: str, options: dict[str, Any], metadata: dict[str, Any]) -> Message | None:
        """The reply's content; `None`: the kernel is to answer, as there has been no GPU process."""
        kernel, shell = self._kernel, self._kernel.shell
        count: int = shell.execution_count
        stored = options["store_history"] and not options["silent"]
        options["metadata"] = {**metadata, numbering.KEY: count}
        shell.execution_count += stored
        store = functools.cache(functools.partial(self._store_input, count, code) if stored else lambda: None)
        ALLOW_STDIN.put(kernel, options["allow_stdin"])
        try:
            self._refuse_subshell()
            if not stored and self._set_up.keep(code):
                return None
            for hidden in self._set_up.take():
                self._gpu().keep_quiet(hidden)
            if not stored and self._gpu().keep_quiet(code):
                return None
            parent = kernel.get_parent("shell")
            ask = Ask(code, f"[{count}]", parent, quiet=not stored, options=options, meanwhile=store)
            answer = self._gpu().execute(ask, retry=self._retry() and stored)
        except GpuError as error:
            return self._failed(error, error._render_traceback_(), options)
        except KeyboardInterrupt as error:
            show_as_sentence(error)
            return self._failed(error, error._render_traceback_(), options)  # type: ignore[attr-defined]
        except Exception as error:  # noqa: BLE001 - without a reply the frontend would wait for ever
            _log.exception("A cell could not be handed to the GPU process.")
            return self._failed(error, traceback.format_exception(error), options)
        finally:
            store()
        if not answer.showed:  # ipykernel lets the reply wait for outputs on their way
            EXECUTE_SLEEP.put(kernel, 0.0)
        if stored and answer.result is not None:
            shell.history_manager.output_hist_reprs[count] = answer.result
            shell.history_manager.store_output(count)
        return self._reply(answer.content)

    def _store_input(self, count: int, code: str) -> None:
        """The user's history has each cell once: this kernel's is the one that lasts."""
        shell = self._kernel.shell
        try:
            transformed = shell.transform_cell(code)
        except Exception:  # noqa: BLE001 - whatever a transformation of the user's raises, as in ipykernel
            transformed = code
        shell.history_manager.store_inputs(count, transformed, code)

    def _refuse_subshell(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise GpuUnavailable(
                "a subshell's cells do not reach the GPU process in auto mode; %%local runs one in the kernel."
            )

    def _failed(self, error: BaseException, lines: list[str], options: Mapping[str, Any]) -> Message:
        """A failure of ours: shown like a cell's own."""
        content = {"ename": type(error).__name__, "evalue": str(error), "traceback": lines}
        if not options["silent"]:
            sys.stdout.flush()
            sys.stderr.flush()
            kernel = self._kernel
            kernel.send_response(kernel.iopub_socket, "error", content, ident=topic(kernel, "error"), channel="shell")
        return self._reply({"status": "error", **content, "user_expressions": {}, "payload": []})

    def _reply(self, content: Message) -> Message:
        # exit() of the GPU process ends that process, never this kernel.
        payload = [part for part in content.get("payload", ()) if part.get("source") != "ask_exit"]
        return {**content, "payload": payload, "execution_count": self._kernel.shell.execution_count - 1}

    # Completion, help, debugger, widgets

    async def _complete(self, code: str, cursor_pos: int | None) -> Message:
        """Instead of `Kernel.do_complete`."""
        position = len(code) if cursor_pos is None else cursor_pos
        content = self._ask(code, position, "complete_request", {"code": code, "cursor_pos": position})
        return content or await _resolved(self._questions.own("do_complete")(code, cursor_pos))

    async def _inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Collection[str] = ()
    ) -> Message:
        """Instead of `Kernel.do_inspect`."""
        question = {"code": code, "cursor_pos": cursor_pos, "detail_level": detail_level}
        question["omit_sections"] = sorted(omit_sections)
        content = self._ask(code, cursor_pos, "inspect_request", question)
        own = self._questions.own("do_inspect")
        return content or await _resolved(own(code, cursor_pos, detail_level, omit_sections))

    def _ask(self, code: str, position: int, msg_type: str, question: Mapping[str, Any]) -> Message | None:
        """The GPU process's answer; `None` where the kernel's own is wanted, or the only one to be had."""
        there = is_gpu_cell(code) or self.on
        if not there or asks_in_kernel(code, position):
            return None
        content = self._gpu().questions.ask(msg_type, question)
        return content if content and content.get("status") == "ok" else None

    async def _debug(self, request: Message) -> Message:
        """Instead of `Kernel.do_debug_request`, in the control thread."""
        reply = await self._gpu().questions.debug(request)
        if reply is None and request["command"] == "debugInfo":
            # Asked by every frontend that connects: a debugger that nobody has started.
            reply = await _resolved(self._rest.own("do_debug_request")(request))
        if reply is None:
            return refusal(request, "there is no GPU process to debug now; run a cell first")
        return reply

    def _comm_open(self, stream: Any, ident: Any, message: Message) -> None:
        self._gpu().comms.opener(self._own_comm_open, auto=self.on)(stream, ident, message)


class _Replaced:
    """Methods of one object that are replaced for a while, and put back as they were."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        # The method from before, and whether it was the instance's own then.
        self._before: dict[str, tuple[Callable[..., Any], bool]] = {}

    def put(self, name: str, method: Callable[..., Any]) -> None:
        """Replace the method `name`, unless that was done."""
        if name not in self._before:
            self._before[name] = getattr(self._owner, name), name in vars(self._owner)
            setattr(self._owner, name, method)

    def own(self, name: str) -> Callable[..., Any]:
        """The owner's, as it is without us."""
        method: Callable[..., Any] = self._before[name][0] if name in self._before else getattr(self._owner, name)
        return method

    def take_away(self) -> None:
        """Put everything back."""
        for name, (method, was_its_own) in self._before.items():
            if was_its_own:
                setattr(self._owner, name, method)
            else:
                delattr(self._owner, name)
        self._before.clear()


@contextlib.contextmanager
def _without_gpus() -> Iterator[None]:
    """What an editor's set-up imports in the kernel takes no memory of a GPU, which nobody has given to it."""
    before = os.environ.get(_VISIBLE)
    os.environ[_VISIBLE] = ""
    try:
        yield
    finally:
        if os.environ.get(_VISIBLE) == "":  # it may have said itself which it wants
            del os.environ[_VISIBLE]
            os.environ.update({} if before is None else {_VISIBLE: before})


async def _resolved(value: Any) -> Message:
    """Some of ipykernel's methods are coroutines, some are not."""
    content: Message = await value if hasattr(value, "__await__") else value
    return content
