"""Jupyter's own tests for kernels: "Python 3 (GPU)" passes what ipykernel itself passes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import jupyter_kernel_test
import pytest
from jupyter_client.manager import KernelManager

from auto_kernel import GPU_KERNEL, install_kernelspecs
from daemon_process import DaemonProcess
from over_ipc import over_ipc

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kernel

DISPLAY = "from IPython.display import HTML, display; display(HTML('<b>test</b>'))"


@pytest.fixture(scope="module", autouse=True)
def kernelspecs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Both kernelspecs, found as an installed one is, and a daemon for the kernels."""
    directory = tmp_path_factory.mktemp("kernels")
    with DaemonProcess(directory) as daemon, pytest.MonkeyPatch.context() as patch:
        own = {"IPYTHONDIR": str(directory / "ipython"), "JUPYTER_RUNTIME_DIR": str(directory / "runtime")}
        for name, value in {**daemon.environment, **own}.items():
            patch.setenv(name, value)
        patch.setenv("JUPYTER_PATH", str(install_kernelspecs(directory / "jupyter")))
        patch.delenv("PYTEST_CURRENT_TEST", raising=False)
        yield


class Samples(jupyter_kernel_test.KernelTests):
    """What both kernels are asked."""

    __test__ = False
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = (
        {"text": "zi", "matches": {"zip"}},
        {"text": "%gpu su", "matches": {"suspend"}},
    )
    complete_code_samples = ("1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n", "%gpu")
    incomplete_code_samples = ("print('''hello", "def f(x):\n  x*2", "%%local\nfor x in y:")
    invalid_code_samples = ("import = 7q",)
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = (
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    )
    code_display_data = ({"code": DISPLAY, "mime": "text/html"},)
    code_history_pattern = "1?2*"
    # Not "range": for the running session ipykernel itself answers with number 0, and this test expects the real one.
    supported_history_operations = ("tail", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"

    @classmethod
    def setUpClass(cls) -> None:
        """As the base class does, over Unix sockets and with the first cell's wait for a GPU behind it."""
        cls.folder = tempfile.TemporaryDirectory(prefix="nls-")
        cls.km = over_ipc(KernelManager, Path(cls.folder.name), kernel_name=cls.kernel_name)
        cls.km.start_kernel(env=dict(os.environ))
        cls.kc = cls.km.client()
        cls.kc.start_channels()
        cls.kc.wait_for_ready(timeout=60)
        cls.kc.execute_interactive("1", timeout=60)

    @classmethod
    def tearDownClass(cls) -> None:
        """As the base class does, and its files too."""
        super().tearDownClass()
        cls.kc.context.destroy(linger=0)
        cls.km.cleanup_resources()
        cls.folder.cleanup()


@pytest.mark.long("the plain kernel held against Jupyter's own tests: the GPU kernel is here")
class TestIPythonKernel(Samples):
    """The peer: if one of these fails, the sample is wrong."""

    __test__ = True
    kernel_name = "python3"


class TestGpuKernel(Samples):
    """Every cell goes through the GPU process."""

    __test__ = True
    kernel_name = GPU_KERNEL

    def test_cells_run_in_the_gpu_process(self) -> None:
        """Or all the rest would prove nothing."""
        self.flush_channels()
        reply, _ = self.execute_helper("import sys; assert 'nls_jupyter.gpu_process.kernel' in sys.modules")
        assert reply["content"]["status"] == "ok"
