"""Draws the phases of a workload into architecture.md, from the table that the daemon obeys. Run by `make docs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from blocks import rewrite

from nls_scheduler.core.model.commands import Command
from nls_scheduler.core.model.transitions import TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.workload import Phase

DOCUMENT = Path(__file__).with_name("architecture.md")


def blocks() -> Mapping[str, str]:
    """The picture, as a Mermaid state diagram: `/` before what the daemon orders, nothing before what happens.

    Where a trigger can lead to several phases, the arrow goes to a choice, which all triggers with the same ends share.
    """
    choices: dict[frozenset[Phase], str] = {}
    arrows: dict[tuple[str, str], list[str]] = {}
    for (phase, trigger), ends in TABLE.items():
        label = f"/{trigger.__name__}" if issubclass(trigger, Command) else trigger.__name__
        end = next(iter(ends)).value if len(ends) == 1 else choices.setdefault(ends, f"choice{len(choices)}")
        arrows.setdefault((phase.value, end), []).append(label)
    lines = ["stateDiagram-v2", *(f"    state {choice} <<choice>>" for choice in choices.values())]
    lines.append("    [*] --> queued: WorkloadSubmitted")
    lines += [f"    {start} --> {end}: {'<br>'.join(labels)}" for (start, end), labels in arrows.items()]
    lines += [f"    {choice} --> {end}" for ends, choice in choices.items() for end in sorted(ends)]
    picture = "\n".join(lines)
    return {"transitions": f"```mermaid\n{picture}\n```"}


if __name__ == "__main__":
    rewrite(DOCUMENT, blocks())
