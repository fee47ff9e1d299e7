"""Container images from a folder, in one archive that `ctr images import` and `docker load` read; no build tool."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Image:
    """One name for the folder. `environment` is `NAME=value`."""

    name: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


def write_images(archive: Path, folder: Path, images: Sequence[Image]) -> None:
    """All of them have the folder as their only layer; its files are root's."""
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as packed:
        packed.add(folder, arcname=".", filter=_of_root)
    with layer.open("rb") as read:
        digest = hashlib.file_digest(read, "sha256").hexdigest()
    with tarfile.open(archive, "w") as packed:
        packed.add(layer, arcname="layer.tar")
        manifest = []
        for number, image in enumerate(images):
            _add(packed, f"{number}.json", _configuration(image, digest))
            manifest.append({"Config": f"{number}.json", "RepoTags": [image.name], "Layers": ["layer.tar"]})
        _add(packed, "manifest.json", manifest)
    layer.unlink()


def _configuration(image: Image, digest: str) -> Mapping[str, object]:
    config = {"Entrypoint": image.entrypoint, "Cmd": image.command, "Env": image.environment}
    layers = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    return {"architecture": "amd64", "os": "linux", "config": config, "rootfs": layers}


def _add(archive: tarfile.TarFile, name: str, content: object) -> None:
    text = json.dumps(content).encode()
    entry = tarfile.TarInfo(name)
    entry.size = len(text)
    archive.addfile(entry, io.BytesIO(text))


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
