"""Builds the conda recipe from an sdist and runs its tests, without conda-forge: this Python and wheels stand in.

    python tools/conda_build.py dist/nls_jupyter-0.1.0.tar.gz

What the recipe requires is resolved, built and tested by conda-forge's own tool, in environments of its own. That
conda-forge has these versions is not shown by it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PathDistribution
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from rattler_build import Stage0Recipe, ToolConfiguration, assemble_package

ROOT = Path(__file__).parents[1]
SERIES = f"{sys.version_info.major}.{sys.version_info.minor}"
PLATFORM = "linux-64"
ON_CONDA = {"python-xxhash": "xxhash"}


def main(sdist: Path) -> int:
    """0 once the package is built and its tests have passed. Raises what conda-forge's tool raises."""
    text = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    text = re.sub(r"url: https://pypi.*", f"url: {sdist.resolve().as_uri()}", text)
    text = re.sub('sha256: ".*"', f'sha256: "{hashlib.sha256(sdist.read_bytes()).hexdigest()}"', text)
    text = re.sub('python_min: ".*"', f'python_min: "{SERIES}"', text)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "recipe.yaml").write_text(text, encoding="utf-8")
        channel = make_channel(folder / "channel", required(yaml.safe_load(text)["requirements"]))
        (built,) = Stage0Recipe.from_file(str(folder / "recipe.yaml")).run_build(
            tool_config=ToolConfiguration(test_strategy="native"),
            output_dir=folder / "output",
            channels=[channel.as_uri()],
        )
    has_passed = any("all tests passed" in line for line in built.log)
    print(f"conda: {built.name} {built.version} is built; its tests have {'' if has_passed else 'not '}passed")  # noqa: T201
    return 0 if has_passed else 1


def required(requirements: dict[str, list[str]]) -> list[str]:
    """What pip is to install for the recipe's requirements."""
    lines = {line for kind in ("host", "run") for line in requirements[kind] if not line.startswith(("python ", "__"))}
    parts = [line.partition(" ") for line in sorted(lines)]
    return [f"{ON_CONDA.get(name, name)}{ranges}" for name, _, ranges in parts]


def make_channel(channel: Path, wanted: list[str]) -> Path:
    """A conda channel with this Python, and with `wanted` and what they require, from PyPI."""
    (channel / "noarch").mkdir(parents=True)
    index = [assembled(channel, "python", sys.version.split()[0], _python(channel / "python"), [])]
    all_of_them = channel / "installed"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(all_of_them)]
    subprocess.run([*command, *wanted], check=True)
    packages = [PathDistribution(info) for info in sorted(all_of_them.glob("*.dist-info"))]
    for package in packages:
        staged = channel / "staged" / package.name
        for file in package.files or ():
            source, target = all_of_them / file, staged / "lib" / f"python{SERIES}" / "site-packages" / file
            if ".." not in file.parts and source.is_file():  # scripts and data are not needed
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        index.append(assembled(channel, _named(package.name), package.version, staged, _depends(package)))
    for kind, found in ((PLATFORM, dict(index)), ("noarch", {})):
        text = json.dumps({"info": {"subdir": kind}, "packages": {}, "packages.conda": found, "repodata_version": 1})
        (channel / kind / "repodata.json").write_text(text, encoding="utf-8")
    return channel


def assembled(channel: Path, name: str, version: str, files: Path, depends: list[str]) -> tuple[str, dict[str, object]]:
    """The package's file name, and what the channel's index says of it."""
    made = assemble_package(
        name, version, PLATFORM, "0", channel / PLATFORM, files_dir=files, depends=depends, compression_level=1
    )
    content = made.path.read_bytes()
    facts: dict[str, object] = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": depends}
    return made.path.name, {
        **facts, "subdir": PLATFORM, "size": len(content), "sha256": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip


def _python(folder: Path) -> Path:
    """This interpreter without what is installed beside it."""
    prefix, left_out = Path(sys.base_prefix), ("site-packages", "dist-packages", "__pycache__", "test", "*.a")
    ignore = shutil.ignore_patterns(*left_out)
    shutil.copytree(prefix / "lib" / f"python{SERIES}", folder / "lib" / f"python{SERIES}", ignore=ignore)
    for library in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy(library, folder / "lib", follow_symlinks=False)
    (folder / "bin").mkdir()
    shutil.copy(prefix / "bin" / f"python{SERIES}", folder / "bin")
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(f"python{SERIES}")
    return folder


def _depends(package: PathDistribution) -> list[str]:
    needed = [need for need in map(Requirement, package.requires or []) if not need.marker or need.marker.evaluate()]
    return [f"python {SERIES}.*", *(f"{_named(need.name)} {need.specifier}".strip() for need in needed)]


def _named(name: str) -> str:
    """One spelling for all; of those that the recipe names, the recipe's."""
    plain = re.sub(r"[-_.]+", "-", name).lower()
    spelt = {"jupyter-client": "jupyter_client", "jupyter-core": "jupyter_core"}
    spelt |= {"prometheus-client": "prometheus_client"} | {value: key for key, value in ON_CONDA.items()}
    return spelt.get(plain, plain)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
