"""Puts the JupyterLab extension into wheels and sdists; builds it first where it is missing and Node is there.

An editable install never builds and never fails for want of Node: `make labextension` builds and links it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "labextension"
OUTPUT = "nls_jupyter/labextension"
INSTALLED = "share/jupyter/labextensions/nls-jupyter"
MISSING = (
    "JupyterLab will show nothing of the GPUs: its extension is not built. "
    "With Node 20 or newer, `make labextension` builds it."
)


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

            npm_builder(self.target_name, version, path=str(Path(self.root) / SOURCE), npm=["jlpm"], build_cmd="build")
        if not self._built:
            self.app.display_warning(MISSING)
        elif self.target_name == "wheel" and version != "editable":
            build_data["shared_data"][str(Path(self.root) / OUTPUT)] = INSTALLED
            # By this the extension manager knows which package it came with.
            build_data["shared_data"][str(Path(self.root) / SOURCE / "install.json")] = f"{INSTALLED}/install.json"

    @property
    def _built(self) -> bool:
        return (Path(self.root) / OUTPUT / "package.json").exists()

    def _to_build(self, version: str) -> bool:
        skip = version == "editable" or os.environ.get("HATCH_JUPYTER_BUILDER_SKIP_NPM") == "1"
        return not skip and not self._built and shutil.which("node") is not None
