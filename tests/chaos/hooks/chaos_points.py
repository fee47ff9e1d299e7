"""Every step of save, restore, release, suspend, move and start at which a process may be killed."""

from __future__ import annotations

from typing import NamedTuple


class Point(NamedTuple):
    """The beginning or the end of one function.

    Attributes:
        step: what goes on there: save, restore, suspend, release, move, start, journal.
        module, function: which one, by its qualified name.
        side: `entry` or `exit`.
        victim: who gets the signal: `self`, `parent` (of a GPU process: its guardian), `gpu` (of a kernel: its GPU
            processes and what stands by).
        passage: on which passage, counted from when it is armed.
    """

    step: str
    module: str
    function: str
    side: str
    victim: str = "self"
    passage: int = 1

    @property
    def name(self) -> str:
        """Unmistakable, and readable as a test's parameter."""
        where = f"{self.module.rpartition('.')[2]}.{self.function}"
        again = f"-{self.passage}" if self.passage > 1 else ""
        return f"{self.step}-{where}-{self.side}-{self.victim}{again}"


_STATE = "nls_jupyter.saved_state."
_GPU_KERNEL = "nls_jupyter.gpu_process.kernel"
_REQUESTS = "nls_jupyter.gpu_process.state_requests"


def _both(step: str, module: str, function: str, victim: str = "self") -> list[Point]:
    return [Point(step, module, function, side, victim) for side in ("entry", "exit")]


IN_GPU_PROCESS = [
    # Save: look, write, pack, commit, hand over, reply.
    *_both("save", _REQUESTS, "StateRequests.save"),
    *_both("save", _REQUESTS, "StateRequests.save", "parent"),
    *_both("save", _STATE + "one_save", "OneSave._walk"),
    *_both("save", _STATE + "one_save", "OneSave.write"),
    Point("save", _STATE + "one_save", "OneSave._add", "entry"),
    Point("save", _STATE + "one_save", "OneSave._add", "entry", passage=3),
    *_both("save", _STATE + "encoder", "Encoder.encode"),
    *_both("save", _STATE + "blobs", "BlobWriter.put_chunks"),
    Point("save", _STATE + "arena", "Arena.fill", "entry"),
    Point("save", _STATE + "arena", "Arena.fill", "exit"),
    Point("save", _STATE + "arena", "Arena.fill", "exit", passage=2),
    Point("save", _STATE + "arena", "Arena.fill", "exit", passage=4),
    *_both("save", _STATE + "one_save", "OneSave.keep_interpreter"),
    *_both("save", _STATE + "arena", "Arena.commit"),
    # A commit is the index, then one superblock.
    Point("save", _STATE + "arena", "_pwrite", "entry"),
    Point("save", _STATE + "arena", "_pwrite", "exit"),
    Point("save", _STATE + "arena", "_pwrite", "exit", passage=2),
    *_both("save", _STATE + "blobs", "BlobWriter.keep_only"),
    *_both("save", _STATE + "saver", "Saver.save"),
    *_both("save", "nls_jupyter.between.state_socket", "StateSocket.send"),
    # Restore: receive, read the index, decode each component, bring back what is beside the names, reply.
    *_both("restore", _REQUESTS, "StateRequests.restore"),
    *_both("restore", _REQUESTS, "StateRequests.restore", "parent"),
    *_both("restore", "nls_jupyter.between.state_socket", "StateSocket.receive"),
    *_both("restore", _STATE + "saver", "Saver.restore"),
    *_both("restore", _STATE + "arena", "Arena.release_all_but"),
    *_both("restore", _STATE + "decoder", "decode"),
    Point("restore", _STATE + "decoder", "decode", "exit", passage=2),
    Point("restore", _STATE + "decoder", "decode", "exit", passage=4),
    Point("restore", _STATE + "interpreter", "Interpreter.apply", "entry"),
    Point("restore", _STATE + "interpreter", "Interpreter.apply", "exit", passage=2),
    # Start.
    *_both("start", _GPU_KERNEL, "GpuProcessKernel.start"),
    *_both("start", _GPU_KERNEL, "GpuProcessKernel.start", "parent"),
    *_both("start", _GPU_KERNEL, "GpuProcessKernel._follow_allowance"),
    Point("cell", _GPU_KERNEL, "GpuProcessKernel.execute_request", "entry"),
    Point("cell", _GPU_KERNEL, "GpuProcessKernel.execute_request", "exit"),
]

OF_KERNEL = [
    # The kernel's own steps, at which the GPU process goes, or the kernel itself.
    *_both("save", "nls_jupyter.supervisor.keeper", "Keeper.save", "gpu"),
    *_both("save", "nls_jupyter.supervisor.keeper", "Keeper.drop_saved", "gpu"),
    *_both("save", "nls_jupyter.supervisor.channel", "GpuProcess._received", "gpu"),
    *_both("suspend", "nls_jupyter.supervisor.keeper", "Keeper.suspend", "gpu"),
    *_both("suspend", "nls_jupyter.supervisor.orders", "Orders._suspend", "gpu"),
    *_both("suspend", "nls_jupyter.supervisor.keeper", "Keeper.end", "gpu"),
    *_both("release", "nls_jupyter.supervisor.place", "Place._release", "gpu"),
    *_both("start", "nls_jupyter.supervisor.launch", "GuardedProcess.start", "gpu"),
    *_both("start", "nls_jupyter.supervisor.keeper", "Keeper.launch", "gpu"),
    *_both("restore", "nls_jupyter.supervisor.keeper", "Keeper.bring_back", "gpu"),
    *_both("restore", "nls_jupyter.supervisor.channel", "GpuProcess.restore", "gpu"),
    Point("save", "nls_jupyter.supervisor.keeper", "Keeper.save", "entry"),
    Point("save", "nls_jupyter.supervisor.keeper", "Keeper.save", "exit"),
    Point("suspend", "nls_jupyter.supervisor.keeper", "Keeper.suspend", "entry"),
    Point("suspend", "nls_jupyter.supervisor.keeper", "Keeper.suspend", "exit"),
    Point("release", "nls_jupyter.supervisor.place", "Place._release", "exit"),
    Point("start", "nls_jupyter.supervisor.keeper", "Keeper.launch", "exit"),
    Point("restore", "nls_jupyter.supervisor.keeper", "Keeper.bring_back", "entry"),
    Point("restore", "nls_jupyter.supervisor.channel", "GpuProcess.restore", "exit"),
]

OF_DAEMON = [
    *_both("journal", "nls_scheduler.daemon.journal", "Journal.record"),
    Point("journal", "nls_scheduler.daemon.journal", "Journal.record", "exit", passage=2),
    Point("journal", "nls_scheduler.daemon.journal", "Journal.record", "exit", passage=4),
    *_both("journal", "nls_scheduler.daemon.daemon", "Daemon.submit"),
    *_both("move", "nls_scheduler.daemon.daemon", "Daemon.migrate"),
    *_both("suspend", "nls_scheduler.daemon.daemon", "Daemon.suspend"),
    *_both("suspend", "nls_scheduler.daemon.daemon", "Daemon.resume"),
    *_both("release", "nls_scheduler.daemon.daemon", "Daemon.release"),
    *_both("move", "nls_scheduler.daemon.sessions", "Session.order"),
    Point("move", "nls_scheduler.daemon.sessions", "Session.order", "exit", passage=2),
    *_both("start", "nls_scheduler.daemon.daemon", "Daemon.attach"),
]

POINTS = [*IN_GPU_PROCESS, *OF_KERNEL, *OF_DAEMON]
