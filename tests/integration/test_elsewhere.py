"""Where there is no Linux, an install breaks nobody's kernel or server, and says in a sentence what is missing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from jupyter_client.manager import KernelManager

from daemon_process import ROOT, nls_environment
from left_out import thinned
from over_ipc import over_ipc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLATFORMS = thinned(("win32", "darwin"), 2, "platforms that are not Linux")
TIMEOUT_S = 60
CONFIGURATION = ROOT / "nls_jupyter" / "etc" / "ipython_kernel_config.json"


def elsewhere(platform: str, directory: Path) -> dict[str, str]:
    """The environment of a process to which our packages see another platform."""
    profile = directory / "ipython" / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.json").write_bytes(CONFIGURATION.read_bytes())
    environment = nls_environment(TEST_PLATFORM=platform, IPYTHONDIR=str(directory / "ipython"))
    environment["JUPYTER_CONFIG_DIR"] = environment["JUPYTER_DATA_DIR"] = str(directory / "jupyter")
    environment["PYTHONPATH"] = f"{ROOT / 'tests' / 'other_platforms'}:{environment['PYTHONPATH']}"
    return environment


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.fixture(params=PLATFORMS)
def platform(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def environment(platform: str, tmp_path: Path) -> dict[str, str]:
    return elsewhere(platform, tmp_path)


def test_the_platform_that_is_taken_away_is_missed(environment: dict[str, str]) -> None:
    """Or the others prove nothing: what needs Linux cannot be used there."""
    code = "import nls_scheduler.wire.locate, nls_scheduler.processes.guardian as g; g.os.pidfd_open"
    done = run(["-c", code], environment)
    assert done.returncode == 1
    assert "fcntl" in done.stderr or "pidfd_open" in done.stderr


def test_the_command_says_that_it_needs_linux(environment: dict[str, str], platform: str) -> None:
    entry_point = "import sys; from nls_scheduler.__main__ import main; sys.exit(main())"
    done = run(["-c", entry_point, "status"], environment)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"nls: it needs Linux, and this is {platform}.\n")


@pytest.mark.long("a Jupyter Server as on other platforms")
def test_jupyter_server_starts_without_a_word_of_ours(environment: dict[str, str], tmp_path: Path) -> None:
    code = (
        "from jupyter_server.serverapp import ServerApp\n"
        "app = ServerApp(jpserver_extensions={'nls_jupyter': True}, log_level=30)\n"
        f"app.initialize(['--port=0', '--no-browser', '--allow-root', '--ServerApp.root_dir={tmp_path}'])\n"
        "print(sorted(app.extension_manager.extensions))\n"
    )
    done = run(["-c", code], environment)
    assert done.returncode == 0, done.stderr
    assert "nls_jupyter" in done.stdout
    assert "nls" not in done.stderr


@pytest.fixture
def kernel(environment: dict[str, str], tmp_path: Path) -> Iterator[tuple[KernelManager, Path]]:
    """An ordinary kernel of an environment in which nls-jupyter is installed, and its log."""
    log_path = tmp_path / "kernel.log"
    manager = over_ipc(KernelManager, tmp_path, kernel_name="python3")
    with log_path.open("w", encoding="utf-8") as log:
        manager.start_kernel(env=environment, cwd=str(tmp_path), stderr=log)
        yield manager, log_path
        manager.shutdown_kernel(now=True)


def test_kernels_start_as_ever_and_a_gpu_cell_says_what_is_missing(
    kernel: tuple[KernelManager, Path], platform: str
) -> None:
    manager, log = kernel
    client = manager.blocking_client()
    client.start_channels()
    told: list[str] = []
    try:
        client.wait_for_ready(timeout=TIMEOUT_S)
        for code in ("print(6 * 7)", "%gpu", "%%gpu\nx = 1", "print('on')"):
            client.execute_interactive(
                code, output_hook=lambda m: told.append(m["content"].get("text", "")), timeout=TIMEOUT_S
            )
    finally:
        client.stop_channels()
    wanted = f"UsageError: nls_jupyter needs Linux, and this kernel runs on {platform}: there is no GPU process here.\n"
    assert [text for text in told if text] == ["42\n", wanted, wanted, "on\n"]
    assert "Error in loading extension" not in log.read_text(encoding="utf-8")


@pytest.mark.long("the GPU kernel as on other platforms")
def test_the_gpu_kernel_does_not_run_as_an_ordinary_one(environment: dict[str, str], tmp_path: Path) -> None:
    connection = str(tmp_path / "connection.json")
    kernel = "--IPKernelApp.kernel_class=nls_jupyter.auto_kernel.AutoKernel"
    done = run(["-m", "ipykernel_launcher", "-f", connection, kernel], environment)
    assert done.returncode != 0
    assert "nls_jupyter needs Linux" in done.stderr
    assert "Choose another kernel." in done.stderr
