"""Jupyter's messages as they go by the lane: as one text, unsigned, since nobody else can write there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_client.jsonutil import parse_date
from jupyter_client.session import json_packer, json_unpacker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PACKED = ("header", "parent_header", "metadata", "content")


def pack(message: Mapping[str, Any], buffers: Sequence[bytes | memoryview] = ()) -> list[bytes | memoryview]:
    """Frames for `Lane.send`. `message` is one as of `Session.msg`."""
    return [json_packer({part: message[part] for part in _PACKED}), *buffers]


def unpack(frames: Sequence[bytes]) -> dict[str, Any]:
    """A message as of `Session.deserialize`, but for dates elsewhere than in its own header, which are texts.

    Raises `ValueError`, `KeyError`, `TypeError`.
    """
    text, *buffers = frames
    message: dict[str, Any] = json_unpacker(text)
    header = message["header"]
    header["date"] = parse_date(header["date"])
    return {
        **message,
        "msg_id": header["msg_id"],
        "msg_type": header["msg_type"],
        "buffers": [memoryview(buffer) for buffer in buffers],
    }
