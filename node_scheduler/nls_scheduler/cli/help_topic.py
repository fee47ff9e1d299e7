"""`nls help`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.output import say, table, tell

if TYPE_CHECKING:
    from nls_scheduler.cli.topics import Topic
    from nls_scheduler.cli.types import Subparsers

_EPILOG = """examples:
  nls help                           all topics
  nls help reserved                  what that means, and what helps
  nls help "room is reserved for training-7, which comes before it"
  nls help run                       the help of a command
"""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "help",
        help="what a message means and what helps",
        description="Explains what the daemon, nls and notebooks say: by topic, or by the message itself. The same "
        "text is in the documentation, in docs/troubleshooting.md.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument("topic", metavar="TOPIC", nargs="*", help="a topic, a message, a kind of reason, or a command")
    parser.set_defaults(run=_run, commands=subparsers.choices)


def _run(options: argparse.Namespace) -> int:
    from nls_scheduler.cli.topics import sought, topics

    words = " ".join(options.topic)
    if not words:
        rows = [["TOPIC", "IS ABOUT"], *([topic.name, topic.title] for topic in topics())]
        say(f"{table(rows)}\n\n`nls help TOPIC` explains one, and `nls help COMMAND` a command.")
        return 0
    found = sought(words)
    if words in options.commands and words not in {topic.name for topic in found}:
        say(options.commands[words].format_help().rstrip())
        return 0
    if not found:
        tell(f"there is no topic {words!r}: `nls help` lists them")
        return exit_codes.USAGE
    if len(found) > 1:
        say(table([["TOPIC", "IS ABOUT"], *([topic.name, topic.title] for topic in found)]))
        return 0
    say(render(found[0]))
    return 0


def render(topic: Topic) -> str:
    """A topic as text for people."""
    parts = [f"{topic.name}: {topic.title}"]
    if topic.sentences:
        parts.append("\n".join(["It says:", *(f"  {sentence}" for sentence in topic.sentences)]))
    return "\n\n".join([*parts, topic.text.replace("**What helps:**", "What helps:")])
