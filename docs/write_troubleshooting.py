"""Writes `troubleshooting.md` from the topics of `nls help`. Run by `make docs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from blocks import rewrite, table

from nls_scheduler.cli.topics import topics

if TYPE_CHECKING:
    from nls_scheduler.cli.topics import Topic

DOCUMENT = Path(__file__).with_name("troubleshooting.md")


def blocks() -> dict[str, str]:
    """All generated parts, by the names of their marks."""
    rows = [[f"[{topic.name}](#{topic.name})", topic.title] for topic in topics()]
    return {"list": table(["topic", "is about"], rows), "topics": "\n\n".join(map(_section, topics()))}


def _section(topic: Topic) -> str:
    title = f"{topic.title[0].upper()}{topic.title[1:]}."
    parts = [f"## {topic.name}", f"**{title}**"]
    if topic.sentences:
        parts.append("\n".join(f"- `{sentence}`" for sentence in topic.sentences))
    if names := [*topic.errors, *topic.refusals]:
        parts.append("Errors: " + ", ".join(f"`{name}`" for name in names) + ".")
    return "\n\n".join([*parts, topic.text])


if __name__ == "__main__":
    rewrite(DOCUMENT, blocks())
