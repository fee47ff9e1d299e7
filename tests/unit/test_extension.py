"""The package itself: what it costs to import, and what it says where it cannot work."""

from __future__ import annotations

import subprocess
import sys


def imported_by(code: str, after: str = "") -> list[str]:
    """The modules that `code` imports in a Python of its own, which has run `after` before."""
    whole = f"import sys\n{after}before = set(sys.modules)\n{code}print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", whole], check=True, capture_output=True, text=True)
    return sorted(done.stdout.split())


def test_to_import_the_package_imports_no_room_that_is_not_used_and_nothing_of_others() -> None:
    assert imported_by("import nls_jupyter\n") == [
        "__future__",
        "nls_jupyter",
        "nls_jupyter.between",
        "nls_jupyter.between.errors",
        "nls_jupyter.gpu_process",
        "nls_jupyter.gpu_process.save_points",
    ]


def test_to_load_the_extension_imports_names_and_configuration_and_nothing_of_others() -> None:
    shell = "import ipykernel.kernelapp\nfrom IPython.core.interactiveshell import InteractiveShell\n"
    shell += "shell = InteractiveShell.instance()\n"
    code = "shell.extension_manager.load_extension('nls_jupyter')\n"
    code += "assert shell.find_line_magic('gpu') and shell.find_cell_magic('gpu') and shell.find_cell_magic('local')\n"
    assert imported_by(code, after=shell) == [
        "nls_jupyter",
        "nls_jupyter.between",
        "nls_jupyter.between.errors",
        "nls_jupyter.gpu_process",
        "nls_jupyter.gpu_process.save_points",
        "nls_jupyter.notebook",
        "nls_jupyter.notebook.auto_cells",
        "nls_jupyter.notebook.completer",
        "nls_jupyter.notebook.late_interrupts",
        "nls_jupyter.notebook.magics",
        "nls_jupyter.notebook.mode_comm",
        "nls_jupyter.notebook.set_up",
        "nls_jupyter.notebook.topics",
        "nls_jupyter.supervisor",
        "nls_jupyter.supervisor.defaults",
    ]
