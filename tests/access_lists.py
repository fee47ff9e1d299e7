"""POSIX access control lists, made without a tool."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = 65534


def let_nobody_write(place: Path) -> None:
    """As `setfacl -m u:nobody:rwx` does: acl(5), in the form of the kernel's posix_acl_xattr.h."""
    owner, user, group, mask, other, nobody = 0x01, 0x02, 0x04, 0x10, 0x20, 0xFFFFFFFF
    entries = [(owner, 7, nobody), (user, 7, NOBODY), (group, 0, nobody), (mask, 7, nobody), (other, 0, nobody)]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(place, "system.posix_acl_access", packed)
    except OSError as error:
        assert os.environ.get("CI") != "true", "a file system with access control lists is needed for temporary files"
        pytest.skip(f"no access control lists on this file system: {error}")
