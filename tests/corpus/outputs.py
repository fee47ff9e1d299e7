"""What one cell showed, in a form in which two runs of it can be compared."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from normalise import Normaliser

Message = dict[str, Any]

OURS = "GPU: "
# What is left of the line below a waiting cell.
_TAKEN_AWAY = {"text/plain": ""}
# What %time and %timeit tell, how fast a bar of tqdm's went; and addresses; whose method `input` is there; and
# that there are more magics.
HIDDEN = (
    (r"(?m)(?<=times: ).*|(?<=time: ).*", "TIME"),
    (r"(?m)[\d.,]+ ?(?:[mnuµμ]?s|min) ±.*", "TIME"),
    (r"(?m)The slowest run took.*\n", ""),
    (r"\d+ loops, best of.*", "TIME"),
    (r"\d+:\d\d<[\d:?]+, +[\d.?]+(?:it/s|s/it)", "TIME"),
    (r"(?<= at )[0-9a-f]{8,}\b", "ADDRESS"),
    (r"<(?:ipykernel\.ipkernel\.IPythonKernel|nls_jupyter\.gpu_process\.kernel\.\w+) object", "<KERNEL object"),
    (r"  %gpu\b|  %%(?:gpu|local)\b", ""),
)
_PICTURES = ("image/png", "image/jpeg")
# Which widget is shown; what it is called differs from run to run, and its text is beside it.
_VIEW = "application/vnd.jupyter.widget-view+json"


@dataclass(frozen=True, slots=True)
class Shown:
    """One cell as its notebook shows it.

    Attributes:
        stdout, stderr: streams, joined; without what nls_jupyter said.
        rich: displays and the result by MIME type, in order; a picture by the digest of its bytes.
        error: name and text of what it raised.
        said: what nls_jupyter told the user in it.
    """

    stdout: str = ""
    stderr: str = ""
    rich: tuple[tuple[tuple[str, str], ...], ...] = ()
    error: tuple[str, str] | None = None
    said: tuple[str, ...] = ()

    def differs(self, other: Shown) -> list[str]:
        """In what, for whoever looks into it; what was said is no output of the cell's."""
        parts = ("stdout", "stderr", "rich", "error")
        return [part for part in parts if getattr(self, part) != getattr(other, part)]

    def excerpts(self, other: Shown) -> list[str]:
        """For each part that differs, where it begins to: of this one, and of the other."""
        found = []
        for part in self.differs(other):
            one, two = str(getattr(self, part)), str(getattr(other, part))
            at = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
            begin = max(0, at - 60)
            found.append(f"{part}: {one[begin : at + 100]!r} | {two[begin : at + 100]!r}")
        return found

    def as_json(self) -> dict[str, Any]:
        """For the report."""
        rich = [{kind: text[:2000] for kind, text in bundle} for bundle in self.rich]
        shown = {"stdout": self.stdout[-4000:], "stderr": self.stderr[-4000:], "rich": rich, "error": self.error}
        return {**{part: value for part, value in shown.items() if value}, "said": list(self.said)}


@dataclass(slots=True)
class Collected:
    """The messages of one cell on iopub, as a frontend applies them to its document."""

    _items: list[Message] = field(default_factory=list)
    _clears: bool = False

    def take(self, message: Mapping[str, Any]) -> None:
        """Add one."""
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "clear_output":
            self._clears = True
            if not content.get("wait"):
                self._clear()
        elif kind == "update_display_data":
            self._update(content)
        elif kind in ("stream", "display_data", "execute_result", "error"):
            self._clear()
            self._items.append({"kind": kind, **content})

    def shown(self, cleaner: Normaliser) -> Shown:
        """The cell, comparable."""
        streams = {"stdout": "", "stderr": ""}
        for item in self._items:
            if item["kind"] == "stream":
                streams[item["name"]] += item["text"]
        lines = streams["stderr"].splitlines(keepends=True)
        said = [line.removeprefix(OURS).strip() for line in lines if line.startswith(OURS)]
        error = next(((i["ename"], i["evalue"]) for i in self._items if i["kind"] == "error"), None)
        return Shown(
            _overwritten(cleaner.clean(streams["stdout"])),
            _overwritten(cleaner.clean("".join(line for line in lines if not line.startswith(OURS)))),
            tuple(
                _bundle(item["data"], cleaner) for item in self._items if item.get("data", _TAKEN_AWAY) != _TAKEN_AWAY
            ),
            None if error is None else (error[0], cleaner.clean(error[1])),
            tuple(said),
        )

    def _clear(self) -> None:
        if self._clears:
            self._items.clear()
        self._clears = False

    def _update(self, content: Mapping[str, Any]) -> None:
        name = content.get("transient", {}).get("display_id")
        for item in self._items:
            if name is not None and item.get("transient", {}).get("display_id") == name:
                item["data"] = content["data"]


def _bundle(data: Mapping[str, Any], cleaner: Normaliser) -> tuple[tuple[str, str], ...]:
    return tuple((kind, _value(kind, value, cleaner)) for kind, value in sorted(data.items()) if kind != _VIEW)


def _value(kind: str, value: Any, cleaner: Normaliser) -> str:
    if kind in _PICTURES:
        return f"sha256 {hashlib.sha256(str(value).encode()).hexdigest()}"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    if kind == "image/svg+xml":
        # Matplotlib draws the identifiers within by chance, and notes the time.
        text = re.sub(r"<dc:date>.*?</dc:date>", "", text)
        return re.sub(r"\b[mp][0-9a-f]{10}\b", "ID", text)
    cleaned: str = cleaner.clean(text)
    return cleaned


def _overwritten(text: str) -> str:
    """Lines as a terminal leaves them: what a carriage return goes back over is not there any more."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
