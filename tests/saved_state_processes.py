"""Two processes with a shell each: what one saves, the next one restores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

from saved_state_roundtrip import WITHIN_S

PROCESS = """
import json, os, sys, warnings
from IPython.core.interactiveshell import InteractiveShell
from nls_jupyter.saved_state import Interpreter, Saver, user_names
import nls_jupyter.saved_state.arena as arena
shell = InteractiveShell.instance(history_length=0)
saver = Saver(interpreter=Interpreter(shell))
fd, verb, cells = int(sys.argv[1]), sys.argv[2], sys.argv[3]
missing = []
if verb == "save":
    arena.os.memfd_create = lambda *_: os.dup(fd)
if verb != "save":
    missing += [(m.name, m.reason) for m in saver.restore([fd], shell.user_ns).missing]
for cell in cells.split("#%%\\n"):
    result = shell.run_cell(cell, store_history=True)
    result.raise_error()
if verb != "restore":
    names = user_names(shell.user_ns, shell.user_ns_hidden)
    missing += [(m.name, m.reason) for m in saver.save(names, cell=None).missing]
print(json.dumps({"missing": missing}))
"""


def in_process(fd, verb, cells, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROCESS, str(fd), verb, textwrap.dedent(cells)],
        pass_fds=[fd],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout.splitlines()[-1])["missing"]


def carried(before, after, **environment):
    """Run `before` in one process and `after` in the next; what was named."""
    fd = os.memfd_create("test")
    try:
        return in_process(fd, "save", before, NLS_TEST="1", **environment) + in_process(fd, "restore", after)
    finally:
        os.close(fd)


def carried_on(before, after):
    """As `carried`, with a process between the two that restores and saves."""
    fd = os.memfd_create("test")
    try:
        return in_process(fd, "save", before) + in_process(fd, "pass on", "1") + in_process(fd, "restore", after)
    finally:
        os.close(fd)
