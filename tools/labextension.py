"""Builds, links, lints or tests the JupyterLab extension. Without Node 20 it says so; with CI=true that is an error."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "labextension"
OUTPUT = ROOT / "nls_jupyter" / "labextension"
NODE_MAJOR = 20
# `jlpm` and perhaps `node` are in this environment, which need not be activated.
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def node_is_there() -> bool:
    """Whether a Node that is new enough can be found, as in hatch_build.py, which stands alone."""
    node = shutil.which("node", path=ENVIRONMENT["PATH"])
    if node is None:
        return False
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    version = re.match(r"v(\d+)", said.stdout)
    return said.returncode == 0 and version is not None and int(version[1]) >= NODE_MAJOR


def jlpm(*words: str) -> None:
    """One command of the package manager that JupyterLab brings; ends this process if it fails."""
    done = subprocess.run(["jlpm", *words], cwd=SOURCE, env=ENVIRONMENT, check=False)  # noqa: S607 - found in PATH
    if done.returncode != 0:
        sys.exit(done.returncode)


def link() -> None:
    """This environment's JupyterLab shows what was built last."""
    installed = Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "nls-jupyter"
    if installed.is_symlink():
        installed.unlink()
    elif installed.exists():
        shutil.rmtree(installed)  # a copy from an earlier install that was not editable
    installed.parent.mkdir(parents=True, exist_ok=True)
    installed.symlink_to(OUTPUT)


def newest(*paths: Path) -> float:
    """When the youngest of these files was written; 0 without one."""
    files = [f for path in paths for f in (path.rglob("*") if path.is_dir() else [path]) if f.is_file()]
    return max((f.stat().st_mtime for f in files), default=0.0)


def main(step: str) -> None:
    """`build`, `lint` or `test`."""
    if not node_is_there():
        print(f"Node {NODE_MAJOR} or newer is missing: the JupyterLab extension is left as it is ({step}).")  # noqa: T201
        sys.exit(1 if os.environ.get("CI") == "true" else 0)
    sources = [SOURCE / name for name in ("src", "style", "schema", "package.json", "yarn.lock")]
    if step == "build" and newest(OUTPUT) > newest(*sources):
        link()
        return
    if newest(SOURCE / "node_modules" / ".yarn-state.yml") < newest(SOURCE / "yarn.lock", SOURCE / "package.json"):
        jlpm("install", "--immutable")
    jlpm(step)
    if step == "build":
        link()


if __name__ == "__main__":
    main(*sys.argv[1:])
