"""What people install: built from these sources, looked into, and used in environments of their own."""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from daemon_process import ROOT
from environments import Environment, hatchling, plain
from over_ipc import over_ipc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGES = ("nls_jupyter", "nls_jupyter_server", "nls_scheduler")
LABEXTENSION = "data/share/jupyter/labextensions/nls-jupyter/"
# Images decide themselves about these; the base install must not bring or need them.
HEAVY = ("cupy", "jupyter_server", "jupyterlab", "kubernetes", "numpy", "torch")
KERNEL_TIMEOUT_S = 60
WHERE = "".join(f"import {name}; print({name}.__file__)\n" for name in PACKAGES)
pytestmark = pytest.mark.long("packages that are built and installed")
USERS_PROFILE = """
c = get_config()
c.InteractiveShellApp.extensions = ["mine"]
c.InteractiveShellApp.extra_extensions.append("mine_too")
"""
EXTENSION = "def load_ipython_extension(shell):\n    shell.user_ns[__name__] = 'loaded'\n"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hatchling(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the unpacked sdist, as an index's users may have to."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    return hatchling(source, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("installed") / "venv", wheel)


def test_the_wheel_holds_our_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.startswith("nls_jupyter-")} == set(PACKAGES)
    assert not [name for name in names if re.search(r"(^|/)(tests?|conftest)[_./]|\.(pyc|ipynb)$", name)]


def test_the_wheel_is_the_same_from_the_checkout_and_from_the_sdist(wheel: Path, tmp_path: Path) -> None:
    checkout = hatchling(ROOT, "wheel", tmp_path)
    assert sorted(zipfile.ZipFile(checkout).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_brings_its_licence_the_command_and_the_kernels_configuration(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    inside = {name.split("/", 1)[1]: name for name in archive.namelist() if name.startswith("nls_jupyter-")}
    assert "licenses/LICENSE" in inside
    assert archive.read(inside["licenses/LICENSE"]) == (ROOT / "LICENSE").read_bytes()
    assert b"nls = nls_scheduler.__main__:main" in archive.read(inside["entry_points.txt"])
    kernelspec = "data/share/jupyter/kernels/python3-gpu/kernel.json"
    assert {name for name in inside if name.startswith("data/") and not name.startswith(LABEXTENSION)} == {
        "data/etc/ipython/ipython_kernel_config.json",
        "data/etc/jupyter/jupyter_server_config.d/nls_jupyter.json",
        kernelspec,
    }
    assert json.loads(archive.read(inside[kernelspec]))["display_name"] == "Python 3 (GPU)"


def test_the_wheel_brings_the_jupyterlab_extension_if_it_is_built(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if f".data/{LABEXTENSION}" in name]
    built = ROOT / "nls_jupyter" / "labextension"
    assert built.exists() or os.environ.get("CI") != "true", "make labextension"
    own = sum(file.is_file() for file in built.rglob("*"))
    assert len(names) == (own + 1 if own else 0)
    if own:  # the extension manager lists it as a package of pip's by these
        archive = zipfile.ZipFile(wheel)
        (told,) = (name for name in names if name.endswith("nls-jupyter/install.json"))
        assert json.loads(archive.read(told))["packageName"] == "nls-jupyter"
        (package,) = (name for name in names if name.endswith("nls-jupyter/package.json"))
        assert "jupyterlab-extension" in json.loads(archive.read(package))["keywords"]
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("nls_jupyter/labextension")]


def test_jupyterlab_finds_the_extension_of_an_installed_wheel_and_knows_its_package(
    wheel: Path, tmp_path: Path
) -> None:
    pytest.importorskip("jupyterlab")
    if not (ROOT / "nls_jupyter" / "labextension").exists():
        pytest.skip("the JupyterLab extension is not built (make labextension)")
    environment = Environment(tmp_path / "environment", wheel)
    command = [str(environment.python), "-m", "jupyterlab.labextensions", "list"]
    done = subprocess.run(
        command, cwd=tmp_path, env=plain(JUPYTER_PREFER_ENV_PATH="1"), capture_output=True, text=True, check=True
    )
    assert re.search(r"nls-jupyter v[\d.]+ .*enabled.*OK.*\(python, nls-jupyter\)", done.stdout + done.stderr)


def test_the_base_install_requires_nothing_heavy(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    required = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])
    base = [line.replace("-", "_") for line in required if "extra ==" not in line]
    assert base
    assert not [line for line in base if line.startswith(HEAVY)]


def test_the_sdist_has_what_is_needed_to_build_test_and_read_it(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    needed = {"pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "PKG-INFO"}
    needed |= {"docs/architecture.md", "examples/tour.ipynb", "tests/conftest.py", "tools/lab.py"}
    needed |= {"hatch_build.py", "labextension/yarn.lock", "labextension/src/index.ts"}
    assert needed <= names
    assert not [name for name in names if name.startswith((".venv", ".ci", "dist/")) or "__pycache__" in name]
    assert not [name for name in names if "node_modules" in name or name.startswith("labextension/lib/")]


def test_an_install_works_without_anything_heavy(installed: Environment, tmp_path: Path) -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r}))\n"
    code += "import nls_jupyter.notebook.commands, nls_jupyter.notebook.notebook_gpu, nls_jupyter.gpu_process.kernel\n"
    code += "import nls_scheduler.cli, nls_scheduler.daemon.http.server\n" + WHERE
    places = installed.run(code, tmp_path)
    assert places == [str(installed.site_packages / name / "__init__.py") for name in PACKAGES]
    nls = [str(installed.python.with_name("nls")), "--version"]
    assert subprocess.run(nls, env=plain(), capture_output=True, check=True).stdout.startswith(b"nls 0.")


def test_an_editable_install_is_live_and_adds_no_other_name(tmp_path: Path) -> None:
    wheel = hatchling(ROOT, "wheel:editable", tmp_path)
    environment = Environment(tmp_path / "venv", wheel)
    assert environment.run(WHERE, tmp_path) == [
        str(ROOT / "nls_jupyter" / "__init__.py"),
        str(ROOT / "server_extension" / "nls_jupyter_server" / "__init__.py"),
        str(ROOT / "node_scheduler" / "nls_scheduler" / "__init__.py"),
    ]
    names = ("node_scheduler", "tests", "tools", "docs", "benchmarks", "daemon_process")
    find = f"from importlib.util import find_spec; print(*(n for n in {names!r} if find_spec(n)))"
    assert environment.run(find, tmp_path) == [""]
    assert (environment.directory / "etc" / "ipython" / "ipython_kernel_config.json").exists()
    assert (environment.directory / "etc" / "jupyter" / "jupyter_server_config.d" / "nls_jupyter.json").exists()


@pytest.fixture
def users_files(tmp_path: Path) -> Path:
    """An IPython directory in which its user loads extensions of their own."""
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text(USERS_PROFILE)
    for name in ("mine", "mine_too"):
        (tmp_path / f"{name}.py").write_text(EXTENSION)
    return tmp_path


@pytest.fixture
def kernel(installed: Environment, users_files: Path) -> Iterator[KernelManager]:
    """A kernel of the fresh environment, as Jupyter starts it."""
    argv = [str(installed.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernels = users_files / "kernels"
    (kernels / "fresh").mkdir(parents=True)
    specification = {"argv": argv, "display_name": "Fresh", "language": "python"}
    (kernels / "fresh" / "kernel.json").write_text(json.dumps(specification))
    specs = KernelSpecManager(kernel_dirs=[str(kernels)])
    manager = over_ipc(KernelManager, kernels, kernel_name="fresh", kernel_spec_manager=specs)
    environment = plain(IPYTHONDIR=str(users_files / "ipython"), PYTHONPATH=str(users_files))
    manager.start_kernel(env=environment, cwd=str(users_files), stderr=subprocess.DEVNULL)
    yield manager
    manager.shutdown_kernel(now=True)


def printed(manager: KernelManager, code: str) -> str:
    client = manager.blocking_client()
    client.start_channels()
    texts: list[str] = []
    try:
        client.wait_for_ready(timeout=KERNEL_TIMEOUT_S)

        def collect(message: dict[str, dict[str, str]]) -> None:
            texts.append(message["content"].get("text") or "".join(message["content"].get("traceback", [])))

        client.execute_interactive(code, output_hook=collect, timeout=KERNEL_TIMEOUT_S)
    finally:
        client.stop_channels()
    return "".join(texts)


def test_every_kernel_of_an_install_has_the_magics_and_the_users_own_extensions(kernel: KernelManager) -> None:
    code = "%gpu log\nprint(mine, mine_too)\nimport nls_jupyter; print(nls_jupyter.__file__)"
    nothing, users_own, place = printed(kernel, code).splitlines()
    assert nothing == "Nothing has happened to this notebook's GPU process yet."
    assert users_own == "loaded loaded"
    assert place.endswith("site-packages/nls_jupyter/__init__.py")
    assert not place.startswith(str(ROOT))
