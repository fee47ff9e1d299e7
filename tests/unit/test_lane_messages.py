"""Jupyter's messages as the lane carries them: whatever a session makes comes out of it as a session reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from jupyter_client.session import Session

from nls_jupyter.between import lane_messages

if TYPE_CHECKING:
    from datetime import datetime

CONTENTS = [
    {},
    {"code": "x = '\u00e9\U0001f600\\n'"},
    {"evalue": "\udcff"},
    {"deep": [{"a": [None, True, 1.5, 2**70]}]},
]


@pytest.mark.parametrize("content", CONTENTS)
def test_a_message_arrives_as_a_session_reads_it(content: dict[str, object]) -> None:
    session = Session(key=b"key")
    parent = session.msg("execute_request")
    message = session.msg("execute_reply", content, parent, metadata={"nls_outputs": 3})
    arrived = lane_messages.unpack([bytes(frame) for frame in lane_messages.pack(message, [b"one", memoryview(b"")])])
    _, frames = session.feed_identities(session.serialize(message))
    read = session.deserialize([*frames, b"one", b""])
    for part in ("header", "metadata", "content", "msg_id", "msg_type"):
        assert arrived[part] == read[part], part
    assert arrived["parent_header"] == {**read["parent_header"], "date": as_text(read["parent_header"]["date"])}
    assert [bytes(buffer) for buffer in arrived["buffers"]] == [b"one", b""]


@pytest.mark.parametrize(
    "text", [b"", b"not a message", b"[]", b"{}", b'{"header": {}}', b'{"header": {"date": "now"}}']
)
def test_what_is_no_message_says_so(text: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        lane_messages.unpack([text])


def as_text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
