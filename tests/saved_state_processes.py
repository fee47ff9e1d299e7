"""Processes with a shell each, one after the other: what one saves, the next one restores."""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap

from saved_state_roundtrip import WITHIN_S

# Each begins as this one is when it has imported what all of them need, which takes longer than most of them live.
BEGINNING = """
import atexit, json, os, select, signal, socket, sys, warnings
from IPython.core.interactiveshell import InteractiveShell
from nls_jupyter.saved_state import Interpreter, Saver, user_names
import nls_jupyter.saved_state.arena as arena

def live(fd, verb, cells):
    shell = InteractiveShell.instance(history_length=0)
    saver = Saver(interpreter=Interpreter(shell))
    missing = []
    if verb == "save":
        arena.os.memfd_create = lambda *_: os.dup(fd)
    if verb != "save":
        with shell.builtin_trap:  # as in a GPU process
            missing += [(m.name, m.reason) for m in saver.restore([fd], shell.user_ns).missing]
    for cell in cells.split("#%%\\n"):
        result = shell.run_cell(cell, store_history=True)
        result.raise_error()
    if verb != "restore":
        names = user_names(shell.user_ns, shell.user_ns_hidden)
        missing += [(m.name, m.reason) for m in saver.save(names, cell=None).missing]
    print(json.dumps({"missing": missing}))

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for name in sys.argv.pop().split():
        __import__(name)
within_s, asked = int(sys.argv.pop()), socket.socket(fileno=int(sys.argv.pop()))
while True:
    data, descriptors, _, _ = socket.recv_fds(asked, 1 << 20, 3)
    if not data:
        break
    child = os.fork()
    if not child:
        asked.close()
        fd, out, err = descriptors
        os.dup2(out, 1), os.dup2(err, 2), os.close(out), os.close(err)
        verb, cells, environment = json.loads(data)
        os.environ.clear(), os.environ.update(environment)
        live(fd, verb, cells)
        if verb != "restore":  # the others take longer to end than to live
            atexit._run_exitfuncs()  # as what cells have started ends with them
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(0)
        break
    watched = os.pidfd_open(child)
    if not select.select([watched], [], [], within_s)[0]:
        os.kill(child, signal.SIGKILL)
    for descriptor in (watched, *descriptors):
        os.close(descriptor)
    asked.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@functools.cache
def _beginning(imports: str) -> socket.socket:
    """To the process from which all others come that have `imports`; it ends with this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", BEGINNING, str(its.fileno()), str(WITHIN_S), imports],
        pass_fds=[its.fileno()],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    its.close()

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


def in_process(fd, verb, cells, imports="", **environment):
    """What a new process names that restores the state in `fd`, runs `cells`, and saves, as `verb` says.

    `imports`: modules that it has from the beginning, as they take longer than all the rest.
    """
    beginning = _beginning(imports)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        asked = json.dumps([verb, textwrap.dedent(cells), {**os.environ, **environment}])
        socket.send_fds(beginning, [asked.encode()], [fd, out.fileno(), err.fileno()])
        code = int(beginning.recv(16))
        out.seek(0), err.seek(0)
        said, complained = out.read(), err.read()
    assert code == 0, complained + said
    return json.loads(said.splitlines()[-1])["missing"]


def carried(before, after, imports="", **environment):
    """Run `before` in one process and `after` in the next; what was named."""
    fd = os.memfd_create("test")
    try:
        named = in_process(fd, "save", before, imports, NLS_TEST="1", **environment)
        return named + in_process(fd, "restore", after, imports)
    finally:
        os.close(fd)


def carried_on(before, after):
    """As `carried`, with a process between the two that restores and saves."""
    fd = os.memfd_create("test")
    try:
        return in_process(fd, "save", before) + in_process(fd, "pass on", "1") + in_process(fd, "restore", after)
    finally:
        os.close(fd)
