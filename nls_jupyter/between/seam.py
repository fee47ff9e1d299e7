"""One name of another package that we use although nobody has promised it, and how it is told that it is missing.

Nothing is imported to find that out.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, Final


class MissingSeamError(NotImplementedError):
    """The installed version of a package does not have what we use; says what does not work, without a full stop."""


@dataclass(frozen=True, slots=True)
class Seam:
    """One such name.

    Attributes:
        owner: the module that has it, or the class, as `module:Class`.
        name: the attribute; with dots, that of an attribute.
        seen_in: the versions of the package that were looked at, all of which have it.
        without: what does not work where it is missing, as a clause.
        set_in: the method that sets it, where only instances have it.
        when_asked: missed only by who asks for it, as not every build of the package is to have it.
    """

    owner: str
    name: str
    seen_in: str
    without: str
    set_in: str = ""
    when_asked: bool = False

    @property
    def module(self) -> str:
        """Where it is, or its class."""
        return self.owner.partition(":")[0]

    @property
    def package(self) -> str:
        """Whose it is."""
        return self.module.partition(".")[0]

    @property
    def missing(self) -> bool:
        """Whether the installed version does not have it; of a module that nobody has imported, whether it is gone."""
        if self.module not in sys.modules:
            return _is_gone(self.module)
        owner = self._owner()
        if not self.set_in:
            return _get(owner, self.name, _NOTHING) is _NOTHING
        method = getattr(owner, self.set_in, None)
        code = getattr(method, "__code__", None)
        if code is None or self.name in code.co_names:
            return code is None
        # Where somebody has put a method of their own, as ipykernel 6 does with threads', it does not show what is set.
        return getattr(method, "__module__", None) in {kind.__module__ for kind in owner.__mro__}

    def told(self) -> str:
        """One sentence for a version that does not have it."""
        kind = self.owner.partition(":")[2]
        return (
            f"{_title(self.package)} has no {kind or self.module}.{self.name}, seen in {self.seen_in}: {self.without}."
        )

    def of(self, thing: Any, *default: Any) -> Any:
        """What `thing` has under this name, else `default`, as `getattr`. Raises MissingSeamError, AttributeError."""
        try:
            return attrgetter(self.name)(thing)
        except AttributeError:
            if default:
                return default[0]
            if self.missing or self.when_asked:
                raise MissingSeamError(self.told().rstrip(".")) from None
            raise  # this thing is not as others of its kind

    def here(self, *default: Any) -> Any:
        """What its owner has; nothing while nobody has imported that. See `of`."""
        return self.of(self._owner(), *default)

    def put(self, thing: Any, value: object) -> None:
        """Have `thing` use `value`."""
        setattr(thing, self.name, value)

    def _owner(self) -> Any:
        module, kind = sys.modules.get(self.module), self.owner.partition(":")[2]
        return getattr(module, kind, None) if kind else module


_NOTHING: Final = object()


def _get(thing: Any, name: str, default: object) -> Any:
    try:
        return attrgetter(name)(thing)
    except AttributeError:
        return default


def _is_gone(module: str) -> bool:
    """Whether a module that nobody has imported cannot be, as far as that can be seen without importing another."""
    parent = module.rpartition(".")[0]
    if parent not in sys.modules:
        return bool(parent) and _is_gone(parent)
    try:
        return find_spec(module) is None
    except (ImportError, ValueError):
        return True


def _title(package: str) -> str:
    """A package with its version, as far as that is known."""
    if package in sys.stdlib_module_names:
        return f"Python {platform.python_version()}"
    version = getattr(sys.modules.get(package), "__version__", None)
    if version is None:  # as gin, of the distribution gin-config
        version = next((metadata.version(name) for name in metadata.packages_distributions().get(package, ())), "")
    return f"{package} {version}".rstrip()
