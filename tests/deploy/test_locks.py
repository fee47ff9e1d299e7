"""What the images install: within the ranges that we give, by hashes, and the same on both architectures."""

from __future__ import annotations

import itertools
import re
import tomllib

import pytest
from manifests import DEPLOY
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from daemon_process import ROOT

LOCKS = DEPLOY / "images" / "locks"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = {"daemon": ["kubernetes"], "notebook-none": [], "notebook-cuda12": ["cuda12"], "notebook-cuda13": ["cuda13"]}
IMAGES = [
    {
        "sys_platform": "linux",
        "platform_machine": machine,
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    for machine, python in itertools.product(("x86_64", "aarch64"), ("3.13", "3.14"))
]


def asked(name: str) -> list[Requirement]:
    """What has to be in a lock."""
    if name == "build":
        lines = (LOCKS / "build.in").read_text(encoding="utf-8").splitlines()
        return [Requirement(line) for line in lines if not line.startswith("#")]
    extras = [line for extra in EXTRAS[name] for line in PROJECT["optional-dependencies"][extra]]
    return [Requirement(line) for line in [*PROJECT["dependencies"], *extras]]


def locked(name: str) -> dict[str, list[tuple[Requirement, list[str]]]]:
    """Per package its pins, each with its hashes."""
    text = (LOCKS / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    pins: dict[str, list[tuple[Requirement, list[str]]]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            written, *hashes = line.split(" --hash=")
            pin = Requirement(written)
            pins.setdefault(canonicalize_name(pin.name), []).append((pin, [each.strip() for each in hashes]))
    return pins


@pytest.mark.parametrize("name", ["build", *EXTRAS])
def test_a_lock_has_one_version_of_everything_that_is_asked_for_on_each_image(name: str) -> None:
    pins = locked(name)
    for wanted, image in itertools.product(asked(name), IMAGES):
        found = [
            pin for pin, _ in pins[canonicalize_name(wanted.name)] if pin.marker is None or pin.marker.evaluate(image)
        ]
        assert len(found) == 1, f"{wanted} on {image}: make locks"
        (version,) = found[0].specifier
        assert version.operator == "=="
        assert wanted.specifier.contains(version.version), f"{wanted} is locked at {version.version}: make locks"


@pytest.mark.parametrize("name", ["build", *EXTRAS])
def test_a_lock_names_every_file_by_its_hash(name: str) -> None:
    for pin, hashes in itertools.chain.from_iterable(locked(name).values()):
        assert hashes, pin
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), pin


def test_there_is_a_lock_for_each_choice_and_no_other() -> None:
    assert {path.stem for path in LOCKS.glob("*.txt")} == {"build", *EXTRAS}
    assert set(itertools.chain(*EXTRAS.values())) == PROJECT["optional-dependencies"].keys() - {
        "docs",
        "lab",
        "lint",
        "release",
        "test",
        "top",
    }


def test_wheels_are_built_with_what_an_isolated_build_would_have() -> None:
    hook = re.search(r"return (\[.*?\]) if self._to_build", (ROOT / "hatch_build.py").read_text(encoding="utf-8"))
    assert hook is not None
    needed = [*PYPROJECT["build-system"]["requires"], *re.findall(r'"([^"]+)"', hook[1])]
    assert {str(Requirement(line)) for line in needed} < {str(each) for each in asked("build")}
