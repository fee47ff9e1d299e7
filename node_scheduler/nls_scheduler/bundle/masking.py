"""Names in texts and values, replaced: what is not known to be harmless does not leave the machine.

Two rules. What is known to be a name (of a user, a workload, a queue, a variable, the machine) is replaced wherever it
stands. Of all other text a word stays only if it is one of this program's own or the system's error messages; whatever
else it is, a name that nobody has listed or a secret, is replaced as well.
"""

from __future__ import annotations

import builtins
import errno
import hashlib
import hmac
import os
import re
import secrets
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.wire import trust

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMING: Final = frozenset(
    {"name", "queue", "gang", "tenant", "missing", "changed", "lost_cells", "parent", "user", "users", "groups"}
    | {"admin_group", "namespace"}
)
"""Fields that hold nothing but names."""
_BY_NAME: Final = frozenset({"queues", "pools", "quota", "limit", "over_quota_weight"})
"""Fields whose mappings have names as keys; all other keys are fields."""
_WORDS_OF_THE_CORE: Final = frozenset({"$", "value", "kind", "doing"})
"""Fields of the core's values that hold types and words of enumerations: never a name, whoever is called so."""
_USER_IDS: Final = frozenset(
    {"owner", "uid", "uids", "gid", "gids", "users", "groups", "admin_group", trust.UID_VARIABLE}
)
"""Fields in which numbers are users and groups."""
_USER_ID: Final = re.compile(r"((?:\b|_)(?:user|owner|uid|UID)[ =/@-])([1-9]\d{0,9})\b")
"""One in a text, as in `/run/user/1000`."""
_FIRST_MASKED_ID: Final = 100_001
_SHORTEST: Final = 2
"""One letter says nothing of anybody."""
_NAMES_OF_OURS: Final = frozenset({"default"})
_EXAMPLES: Final = frozenset({"alice", "bob", "training", "analysis", "research", "teaching", "example"})
"""In our own help, where they mean nobody; elsewhere they may be somebody's."""
_SYSTEM: Final = (
    "usr lib lib64 bin etc run tmp var proc dev sys local opt home root shm site packages share python python3 jupyter "
    "runtime nls db wal shm py so ipynb utf ascii utc systemd journal cgroup slice scope service memory nvidia cuda"
)
_TOKEN: Final = re.compile(r"[^\s\"'`()\[\]{}<>,;:=|]+")
_WORD: Final = re.compile(r"[^\W\d_]+")
_RUN: Final = re.compile(r"[^\W_]+")
_LETTERS: Final = re.compile(r"([^\W\d_]+)\d*")
_UUID: Final = r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_HARMLESS: Final = re.compile(
    # Numbers and times, sizes, ids of workloads, UUIDs of Gpus.
    r"[\W\d_]*|\d[\dTZ.+-]*|\d+(?:\.\d+)?[A-Za-z]{1,3}|\d+x\d+[A-Za-z]{1,3}|[0-9a-f]{12}|" + _UUID
)
_NOBODY: Final = re.compile(r"[\W\d_]*|" + _UUID)
"""What says nothing of anybody even as a name: a number. `9kim` is as long as `9GiB`."""


class Mask:
    """The same name is the same word everywhere in one bundle, and another one in the next."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._key = secrets.token_bytes(32)
        self._names: set[str] = set()
        self._products: set[str] = set()
        self._products_words: set[str] = set()
        self._ids: dict[int, int] = {}
        self._known: re.Pattern[str] | None = None
        self.learn(names)

    def learn(self, names: Iterable[str]) -> None:
        """These are names, wherever they stand."""
        self._names.update(name for name in names if len(name) >= _SHORTEST and name not in _NAMES_OF_OURS)
        self._known = None

    def learn_from(self, value: Any) -> None:
        """Whatever JSON-like `value` says is somebody's name; those of Gpus, and of their products, are nobody's."""
        if isinstance(value, dict):
            of_gpu = "uuid" in value or value.get("kind") == "gpu"
            if of_gpu and isinstance(value.get("name"), str):
                self._products.add(value["name"])
                self._products_words.update(_RUN.findall(value["name"]))
            for key, item in value.items():
                if key in _NAMING and not of_gpu:
                    self.learn(_strings(item))
                self.learn_from(item)
        elif isinstance(value, list | tuple):
            for item in value:
                self.learn_from(item)

    def value(self, value: Any, key: str = "") -> Any:
        """JSON-like `value` with every text in it masked, and the ids of users."""
        if isinstance(value, str):
            if key in _USER_IDS and value.isdecimal():
                return str(self._id(int(value)))
            return value if value in self._products else self._name(value) if key in _NAMING else self.text(value)
        if isinstance(value, dict):
            kept = _WORDS_OF_THE_CORE if "$" in value else frozenset()
            if key in _BY_NAME and not kept:
                return {self._name(str(name)): self.value(item) for name, item in value.items()}
            return {
                self._unlisted(str(name)): item
                if name in kept and isinstance(item, str)
                else self.value(item, str(name))
                for name, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item, "" if isinstance(item, dict) else key) for item in value]
        if key in _USER_IDS and isinstance(value, int) and not isinstance(value, bool):
            return self._id(value)
        return value

    def text(self, text: str) -> str:
        """A sentence, a path, the line of a log."""
        if self._known is None:
            longest_first = sorted(self._names, key=len, reverse=True)
            inside = "|".join(map(re.escape, longest_first)) or r"(?!)"
            self._known = re.compile(rf"{_UUID}|(?<![^\W_])(?:{inside})(?![^\W_])")
        text = _USER_ID.sub(lambda found: f"{found[1]}{self._id(int(found[2]))}", text)
        return self._unlisted(self._known.sub(lambda found: self._name(found[0]), text))

    def _id(self, number: int) -> int:
        return self._ids.setdefault(number, _FIRST_MASKED_ID + len(self._ids)) if number > 0 else number

    def _unlisted(self, text: str) -> str:
        """`text` without words that are not ours; what is known as a name may be one of ours."""
        return _TOKEN.sub(lambda found: "/".join(map(self._token, found[0].split("/"))), text)

    def _token(self, token: str) -> str:
        if _HARMLESS.fullmatch(token) or token in _PSEUDONYMS:
            return token
        runs = (run for run in _RUN.findall(token) if run not in self._products_words)
        return token if all(map(_is_ours, runs)) else self._name(token)

    def _name(self, name: str) -> str:
        if len(name) < _SHORTEST or name in _NAMES_OF_OURS or name in _PSEUDONYMS or _NOBODY.fullmatch(name):
            return name
        return f"name-{hmac.new(self._key, name.encode('utf-8', 'replace'), hashlib.sha256).hexdigest()[:8]}"


class _Pseudonyms:
    _SHAPE: Final = re.compile(r"name-[0-9a-f]{8}[.,!?]*")

    def __contains__(self, text: str) -> bool:
        return self._SHAPE.fullmatch(text) is not None


_PSEUDONYMS: Final = _Pseudonyms()


def _is_ours(run: str) -> bool:
    """Whether letters and digits without anything between are a number, or a word of ours, as in `lib64`."""
    letters = _LETTERS.fullmatch(run)
    return _HARMLESS.fullmatch(run) is not None or (letters is not None and letters[1].lower() in vocabulary())


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [text for item in value for text in _strings(item)] if isinstance(value, list | tuple) else []


@cache
def vocabulary() -> frozenset[str]:
    """Lower-case words that say nothing of anybody: of this program's sources, of Python's and the system's errors."""
    package = Path(__file__).parent.parent
    texts = [path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))]
    texts += [os.strerror(number) for number in errno.errorcode]
    texts += [_SYSTEM, *dir(builtins)]
    return frozenset(word.lower() for text in texts for word in _WORD.findall(text)) - _EXAMPLES
