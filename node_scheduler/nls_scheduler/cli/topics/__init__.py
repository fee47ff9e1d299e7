"""What each message means and what helps: `topics.md`, from which `nls help` and the documentation are both made."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.views.sentences import shape

LEAST_LETTERS: Final = 5
"""A sentence with fewer of its own tells too little to be known again by."""
_MARK: Final = re.compile(r"<!-- (reasons|refusals|says|errors): (.*?) -->\n")
_LINK: Final = re.compile(r"nls help ([a-z-]+)")
_WORDS: Final = re.compile(r'"([^"]*)"|(\S+)')


@dataclass(frozen=True, slots=True)
class Topic:
    """One of them.

    Attributes:
        name: one word, after `nls help`.
        title: what it is about.
        text: Markdown: what it means, and what helps.
        reasons: kinds of reasons that it explains.
        refusals: titles of problem objects.
        errors: names of what a cell raises.
        says: other messages, with `…` for what differs.
    """

    name: str
    title: str
    text: str
    reasons: tuple[Reason, ...]
    refusals: tuple[str, ...]
    errors: tuple[str, ...]
    says: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """How the messages read that it explains."""
        return (*filter(None, map(shape, self.reasons)), *self.says)


@functools.cache
def topics() -> tuple[Topic, ...]:
    """All, in their order."""
    text = files(__name__).joinpath("topics.md").read_text(encoding="utf-8")
    return tuple(_topic(part) for part in re.split(r"^# ", text, flags=re.MULTILINE)[1:])


def _topic(part: str) -> Topic:
    head, _, body = part.partition("\n")
    name, _, title = head.partition(": ")
    marked: dict[str, list[str]] = {}
    for kind, words in _MARK.findall(body):
        marked.setdefault(kind, []).extend(quoted or plain for quoted, plain in _WORDS.findall(words))
    found = {kind: tuple(marked.get(kind, ())) for kind in ("refusals", "errors", "says")}
    reasons = tuple(map(Reason, marked.get("reasons", ())))
    return Topic(name, title, _MARK.sub("", body).strip(), reasons, **found)


def topic_of_reason(kind: str | None) -> str | None:
    """The topic's name; `None`: the kind is not told, or is one of a newer daemon."""
    return next((topic.name for topic in topics() if kind in topic.reasons), None)


def topic_of_refusal(title: str) -> str | None:
    """The topic's name for the title of a problem object."""
    return next((topic.name for topic in topics() if title in topic.refusals), None)


def sought(words: str) -> list[Topic]:
    """The topics for a name, a kind of reason, a title, an error's name, or a message as it was read; best first."""
    for matching in (_named, _linked, _called, _said, _headed, _about):
        if found := matching(words.strip()):
            return found
    return []


def _named(words: str) -> list[Topic]:
    return [topic for topic in topics() if topic.name == words.casefold()]


def _linked(message: str) -> list[Topic]:
    """By the topic that the message itself names."""
    link = _LINK.search(message)
    return [] if link is None else _named(link[1])


def _called(words: str) -> list[Topic]:
    return [t for t in topics() if words in t.reasons or words in t.refusals or words in t.errors]


def _said(message: str) -> list[Topic]:
    """By the sentence with the most letters of its own that is in the message."""
    plain = _plain(message)
    found = {topic: max(map(functools.partial(_letters, plain), topic.sentences), default=0) for topic in topics()}
    best = max(found.values())
    return [topic for topic, letters in found.items() if letters == best] if best >= LEAST_LETTERS else []


def _letters(message: str, sentence: str) -> int:
    pieces, end = _plain(sentence).split("…"), 0
    for piece in pieces:
        if (start := message.find(piece, end)) < 0:
            return 0
        end = start + len(piece)
    return sum(len(piece.strip()) for piece in pieces)


def _plain(text: str) -> str:
    """Notebooks begin sentences with a capital, and quote commands."""
    return text.replace("`", "").casefold()


def _headed(message: str) -> list[Topic]:
    """By the error or the title that a message begins with."""
    return _called(message.partition(":")[0])


def _about(words: str) -> list[Topic]:
    sentences = {topic: " ".join((topic.name, topic.title, topic.text)).casefold() for topic in topics()}
    return [topic for topic, text in sentences.items() if words and words.casefold() in text]
