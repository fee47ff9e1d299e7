"""Puts the JupyterLab extension into wheels and sdists; builds it first where it is missing or older than its sources.

Where that fails, as without Node 20 or a registry of npm's, the rest is built with what is there.

And gives an index the README with links that lead somewhere there: the file itself has relative ones.

An editable install never builds and never fails for want of Node: `make labextension` builds and links it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SOURCE = "labextension"
BUILT_FROM = ("src", "style", "schema", "package.json", "yarn.lock")
OUTPUT = "nls_jupyter/labextension"
NODE_MAJOR = 20
INSTALLED = "share/jupyter/labextensions/nls-jupyter"
MISSING = (
    "JupyterLab will show nothing of the GPUs: its extension is not built. "
    "With Node 20 or newer, `make labextension` builds it."
)
FAILED = "The JupyterLab extension could not be built (HATCH_JUPYTER_BUILDER_SKIP_NPM=1 leaves it out at once)"

REPOSITORY = "https://github.com/nls-jupyter/nls-jupyter"
RAW = "https://raw.githubusercontent.com/nls-jupyter/nls-jupyter"
_LINK = re.compile(r"(!?\[[^\]]*\]\()(?!\w+:|#)([^)\s]+)\)")


def readme(text: str, version: str) -> str:
    """`text` with absolute links, to the files as they are in that version."""

    def absolute(found: re.Match[str]) -> str:
        base = f"{RAW}/v{version}" if found[1].startswith("!") else f"{REPOSITORY}/blob/v{version}"
        return f"{found[1]}{base}/{found[2]})"

    return _LINK.sub(absolute, text)


class ReadmeHook(MetadataHookInterface):
    """Hatch finds it by its base class."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling once the version is known."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme(text, metadata["version"])}


class LabExtensionHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's own type parameter has no use here
    """Hatch finds it by its base class."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build environment needs besides hatchling, only where something is to be built."""
        return ["hatch-jupyter-builder>=0.9,<1", "jupyter-builder>=1,<2"] if self._to_build("standard") else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before each wheel and sdist; `version` is `standard` or `editable`."""
        if self._to_build(version):
            from hatch_jupyter_builder import npm_builder

            try:
                npm_builder(
                    self.target_name, version, path=str(Path(self.root) / SOURCE), npm=["jlpm"], build_cmd="build"
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                self.app.display_warning(f"{FAILED}: {error}")
        if not self._built:
            self.app.display_warning(MISSING)
        elif self.target_name == "wheel" and version != "editable":
            build_data["shared_data"][str(Path(self.root) / OUTPUT)] = INSTALLED
            # By this the extension manager knows which package it came with.
            build_data["shared_data"][str(Path(self.root) / SOURCE / "install.json")] = f"{INSTALLED}/install.json"

    @property
    def _built(self) -> bool:
        return (Path(self.root) / OUTPUT / "package.json").exists()

    @property
    def _up_to_date(self) -> bool:
        """A clone that was pulled after an install has the extension of before; in an sdist all files are as old."""
        root = Path(self.root)
        return _newest(root / OUTPUT) >= _newest(*(root / SOURCE / name for name in BUILT_FROM))

    def _to_build(self, version: str) -> bool:
        skip = version == "editable" or os.environ.get("HATCH_JUPYTER_BUILDER_SKIP_NPM") == "1"
        return not skip and not (self._built and self._up_to_date) and _node_can_build()


def _newest(*paths: Path) -> float:
    """When the youngest of these files was written; 0 without one."""
    files = [f for path in paths for f in (path.rglob("*") if path.is_dir() else [path]) if f.is_file()]
    return max((f.stat().st_mtime for f in files), default=0.0)


def _node_can_build() -> bool:
    """Whether there is a Node that is new enough: an older one would fail half-way, and all of the install with it."""
    node = shutil.which("node")
    if node is None:
        return False
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    version = re.match(r"v(\d+)", said.stdout)
    return said.returncode == 0 and version is not None and int(version[1]) >= NODE_MAJOR
