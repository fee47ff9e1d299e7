"""Which keys were pressed, from what a terminal sends. Pure."""

from __future__ import annotations

import codecs
from typing import Final

ESCAPE: Final = "\x1b"
_NAMED: Final = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left",
    "\x1bOA": "up", "\x1bOB": "down", "\x1bOC": "right", "\x1bOD": "left",
    "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end",
    "\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\x0c": "redraw", ESCAPE: "escape",
}  # fmt: skip
"""As terminals of the kind `xterm`, `screen`, `tmux` and `linux` send them."""


class Keys:
    """Key names, or the character itself. A sequence may come in pieces, as over a slow line."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""

    def pressed(self, received: bytes) -> list[str]:
        """Those that are complete with what was `received`."""
        text, self._begun, found = self._begun + self._decoder.decode(received), "", []
        while text:
            sequence = _sequence(text)
            if sequence is None:
                self._begun = text
                break
            text = text[len(sequence) :]
            if (name := _NAMED.get(sequence, sequence)) == sequence and (len(name) > 1 or not name.isprintable()):
                continue  # a key that nothing is bound to
            found.append(name)
        return found

    @property
    def waits(self) -> bool:
        """Whether more is to come, or the escape key was pressed: only time tells."""
        return bool(self._begun)

    def no_more(self) -> list[str]:
        """Nothing has come for a while: what has begun was the escape key."""
        begun, self._begun = self._begun, ""
        return ["escape"] if begun else []


def _sequence(text: str) -> str | None:
    """The first key's characters; `None`: there is more to come."""
    if text[0] != ESCAPE or text[1:2] == ESCAPE:
        return text[0]
    if len(text) == 1:
        return None
    if text[1] == "O":
        return text[:3] if len(text) > 2 else None
    if text[1] != "[":
        return text[:2]
    end = next((at for at, c in enumerate(text[2:], 2) if "@" <= c <= "~"), None)
    return None if end is None else text[: end + 1]
