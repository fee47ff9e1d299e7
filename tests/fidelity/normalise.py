"""Makes two runs of the same cell comparable: what must differ between any two processes goes, all else stays."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernels import Transcript

Message = dict[str, Any]
Event = tuple[Any, ...]

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_IDENTIFIER = re.compile(r"(?<![0-9a-z])(?:[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9a-z])")
_ALWAYS = (
    # The same cell has another number in a notebook with other cells, and IPython pads the arrow in front of it.
    (re.compile(r"(Cell )?In ?\[\d+\]"), "In [n]"),
    (re.compile(r"-{70,}"), "-----"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "0xADDRESS"),
    # Cells are compiled from files named after the process and a hash that takes the number in.
    (re.compile(r"/\S*/ipykernel_\d+/\d+\.py"), "<cell>"),
    (re.compile(r"\(\d+\.py, line"), "(<cell>, line"),
    (re.compile(r"<ipython-input-\d+-[0-9a-f]+>"), "<cell>"),
)


class Normaliser:
    """For one case in one kernel: an identifier keeps its name through all steps of the case."""

    def __init__(self, directory: str, hide: Iterable[tuple[str, str]] = (), *, streams_race: bool = False) -> None:
        self._directory = directory
        self._hide = [(re.compile(pattern), replacement) for pattern, replacement in hide]
        self._streams_race = streams_race
        self._requests: list[str] = []
        self._identifiers: dict[str, str] = {}

    def events(self, transcript: Transcript, prefix: str) -> list[Event]:
        """What the step looked like to the user."""
        self._requests.append(transcript.msg_id)
        events = [self._event(message, prefix) for message in transcript.shown]
        events = _merged(self._apart(events) if self._streams_race else events)
        events = [tuple(self.clean(part) for part in event) for event in events]
        events += [("input_request", *self._asked(message)) for message in transcript.asked]
        return [*events, *self._replied(transcript)]

    def _event(self, message: Message, prefix: str) -> Event:
        kind, content = message["header"]["msg_type"], message["content"]
        match kind:
            case "stream":
                return (content["name"], content["text"])
            case "execute_input":
                return (kind, content["code"].removeprefix(prefix))
            case "display_data" | "update_display_data":
                return (kind, content["data"], content["metadata"], content.get("transient") or {})
            case "execute_result":
                return (kind, content["data"], content["metadata"])
            case "error":
                return (kind, content["ename"], content["evalue"], "\n".join(content["traceback"]))
            case "clear_output":
                return (kind, content["wait"])
            case _:
                buffers = [bytes(buffer).hex() for buffer in message.get("buffers", ())]
                return (kind, content, message["metadata"], buffers)

    def _asked(self, message: Message) -> Event:
        return (message["content"]["prompt"], message["content"]["password"])

    def _replied(self, transcript: Transcript) -> list[Event]:
        reply = transcript.reply
        if reply is None:
            return []
        raised = (reply.get("ename"), reply.get("evalue"), "\n".join(reply.get("traceback", ())))
        expressions = {name: self._expression(value) for name, value in reply.get("user_expressions", {}).items()}
        event = ("reply", reply["status"], *raised, reply.get("payload"), expressions)
        return [tuple(self.clean(part) for part in event)]

    def _expression(self, value: Message) -> Message:
        return {**value, "traceback": "\n".join(value.get("traceback", ()))}

    def clean(self, part: Any) -> Any:
        """Texts within `part` without what differs from process to process."""
        if isinstance(part, dict):
            return {self.clean(key): self.clean(value) for key, value in part.items()}
        if isinstance(part, list):
            return [self.clean(value) for value in part]
        return self._clean_text(part) if isinstance(part, str) else part

    def _clean_text(self, text: str) -> str:
        text = _ANSI.sub("", text).replace(self._directory, "<directory>")
        for number, msg_id in enumerate(self._requests, 1):
            text = text.replace(msg_id, f"<request {number}>")
        for pattern, replacement in _ALWAYS:
            text = pattern.sub(replacement, text)
        for pattern, replacement in self._hide:
            text = pattern.sub(replacement, text)
        return _IDENTIFIER.sub(self._name, text)

    def _name(self, found: re.Match[str]) -> str:
        self._identifiers.setdefault(found[0], f"id-{len(self._identifiers) + 1}")
        return self._identifiers[found[0]]

    def _apart(self, events: Sequence[Event]) -> list[Event]:
        """Neighbouring stream texts sorted by name, in the order of each."""
        sorted_events: list[Event] = []
        run: list[Event] = []
        for event in [*events, ("end",)]:
            if event[0] in ("stdout", "stderr"):
                run.append(event)
            else:
                sorted_events += [*sorted(run, key=lambda e: e[0]), event]
                run = []
        return sorted_events[:-1]


def _merged(events: Sequence[Event]) -> list[Event]:
    """Consecutive texts of one stream as one: where they are cut depends on timers."""
    merged: list[Event] = []
    for event in events:
        if merged and event[0] in ("stdout", "stderr") and merged[-1][0] == event[0]:
            merged[-1] = (event[0], merged[-1][1] + event[1])
        else:
            merged.append(event)
    return merged


def opened_comms(transcripts: Sequence[Transcript]) -> list[str]:
    """Identifiers of the comms that the cells opened, in order."""
    shown = [message for transcript in transcripts for message in transcript.shown]
    return [m["content"]["comm_id"] for m in shown if m["header"]["msg_type"] == "comm_open"]


def readable(events: Sequence[Event]) -> list[str]:
    """One line for each event, for pytest to compare."""
    return [json.dumps(event, ensure_ascii=False, default=repr, sort_keys=True) for event in events]
