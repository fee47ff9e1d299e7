"""The images of the daemon and of notebooks, from the interpreter and the packages that run the tests.

What a build installs by its locks is tested elsewhere (tests/deploy/test_image_builds.py), and wants a registry for its
base; these want nothing. One folder serves as both.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from image_archive import Image, write_images
from packaging.requirements import Requirement

from daemon_process import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "/opt/nls"
DAEMON, NOTEBOOK, OTHER = (
    f"docker.io/library/{name}" for name in ("nls-scheduler:0.1.0", "nls-notebook:0.1.0", "other")
)
OURS = ("nls_jupyter", "node_scheduler/nls_scheduler", "server_extension/nls_jupyter_server")
ENVIRONMENT = (f"PATH={PREFIX}/bin:/bin", "HOME=/tmp", "NLS_SOCKET=/run/nls/nls.sock", "PYTHONDONTWRITEBYTECODE=1")
PASSWD = "root:x:0:0:root:/root:/bin/sh\njovyan:x:1000:100:jovyan:/tmp:/bin/sh\n"
_SHARED = re.compile(r"(?:=> |^\s*)(/\S+) \(0x")


def write_node_images(archive: Path, scratch: Path) -> None:
    """Images `DAEMON`, `NOTEBOOK` and `OTHER`, the last for pods that know nothing of notebooks."""
    folder = scratch / "root"
    _python(folder)
    for link in ("sh", "sleep", "cat", "ls"):
        _link(folder / "bin" / link, "busybox")
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, folder / "bin/busybox")
    for name in ("tmp", "run/nls", "var/lib", "proc", "sys", "dev", "etc"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "tmp").chmod(0o1777)
    (folder / "etc/passwd").write_text(PASSWD)
    (folder / "etc/group").write_text("root:x:0:\nusers:x:100:\n")
    images = [
        Image(DAEMON, ("nls", "--state-dir", "/var/lib/nls"), ("up", "--kubernetes"), ENVIRONMENT),
        Image(NOTEBOOK, ("jupyter", "lab"), (), ENVIRONMENT),
        Image(OTHER, ("sleep", "infinity"), (), ENVIRONMENT),
    ]
    write_images(archive, folder, images)
    shutil.rmtree(folder)


def _python(folder: Path) -> None:
    home = folder / PREFIX.strip("/")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = home / "lib" / version / "site-packages"
    skipped = shutil.ignore_patterns("site-packages", "dist-packages", "test", "__pycache__", "config-*", "*.a")
    shutil.copytree(sysconfig.get_path("stdlib"), home / "lib" / version, ignore=skipped)
    (home / "bin").mkdir()
    shutil.copy(Path(sys.executable).resolve(), home / "bin" / version)
    _link(home / "bin/python3", version)
    _link(home / "bin/python", version)
    for each in _needed({"nls-jupyter": {"kubernetes", "lab"}}):
        _copy(each, packages, home)
    for path in OURS:
        shutil.copytree(ROOT / path, packages / Path(path).name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "nls_jupyter/kernelspec", home / "share/jupyter/kernels/python3-gpu")
    settings = home / "etc/jupyter/jupyter_server_config.d"
    shutil.copytree(ROOT / "server_extension/jupyter_server_config.d", settings, dirs_exist_ok=True)
    (home / "etc/ipython").mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "nls_jupyter/etc/ipython_kernel_config.json", home / "etc/ipython")
    (home / "bin/nls").write_text(f"#!{PREFIX}/bin/python3\nfrom nls_scheduler.cli import main\nmain()\n")
    (home / "bin/nls").chmod(0o755)
    for library in _libraries([home / "bin" / version, *home.rglob("*.so*")]):
        (folder / library.strip("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, folder / library.strip("/"))


def _needed(asked: dict[str, set[str]]) -> Iterator[Distribution]:
    """Everything that these require with these extras, without themselves."""
    first, done = set(asked), set()
    waiting = list(asked.items())
    while waiting:
        name, extras = waiting.pop()
        if (name, frozenset(extras)) in done:
            continue
        done.add((name, frozenset(extras)))
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform or interpreter
        if name not in first:
            yield found
        for line in found.requires or ():
            wanted = Requirement(line)
            if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                waiting.append((wanted.name, wanted.extras))


def _copy(package: Distribution, packages: Path, home: Path) -> None:
    """Files beside the packages, as scripts and settings, stay beside them."""
    for file in package.files or ():
        source = Path(str(file.locate()))
        if "__pycache__" in file.parts or not source.exists():
            continue
        parts = [part for part in file.parts if part != ".."]
        target = (home if ".." in file.parts else packages).joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        if target.parent == home / "bin":
            lines = target.read_bytes().split(b"\n", 1)
            if lines[0].startswith(b"#!") and b"python" in lines[0]:
                target.write_bytes(b"\n".join([f"#!{PREFIX}/bin/python3".encode(), *lines[1:]]))


def _libraries(binaries: list[Path]) -> set[str]:
    told = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
    found = {match for line in told.splitlines() for match in _SHARED.findall(line)}
    inside = os.path.commonpath(list(map(str, binaries)))
    return {path for path in found if not path.startswith(inside)}


def _link(at: Path, to: str) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to)
