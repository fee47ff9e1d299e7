"""What cells tell modules of Python's standard library: they are imported anew in the next process."""

from __future__ import annotations

import faulthandler
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import XML_PREFIXES
from nls_jupyter.saved_state.aspect import Aspect

if TYPE_CHECKING:
    from collections.abc import Mapping


def of_standard_library() -> tuple[Aspect, ...]:
    """Each where its module is imported."""
    return (
        Aspect("prefixes of XML", lambda: dict(XML_PREFIXES.here()), _register_prefixes, XML_PREFIXES.module),
        Aspect(
            "the first day of the week",
            lambda: _of("calendar").firstweekday(),
            lambda day: _of("calendar").setfirstweekday(day),
            "calendar",
        ),
        Aspect("reprlib's limits", lambda: dict(vars(_of("reprlib").aRepr)), _set_limits_of_texts, "reprlib"),
        Aspect(
            "zoneinfo's folders",
            lambda: _of("zoneinfo").TZPATH,
            lambda folders: _of("zoneinfo").reset_tzpath(folders),
            "zoneinfo",
        ),
        Aspect("faulthandler", faulthandler.is_enabled, _set_faulthandler),
        Aspect("sys.pycache_prefix", lambda: sys.pycache_prefix, _set_pycache_prefix),
        Aspect(
            "origins of coroutines",
            sys.get_coroutine_origin_tracking_depth,
            sys.set_coroutine_origin_tracking_depth,
        ),
    )


def _of(module: str) -> Any:
    return sys.modules[module]


def _register_prefixes(prefixes: Mapping[str, str]) -> None:
    for uri, prefix in prefixes.items():
        if XML_PREFIXES.here().get(uri) != prefix:
            _of(XML_PREFIXES.module).register_namespace(prefix, uri)


def _set_limits_of_texts(limits: Mapping[str, Any]) -> None:
    vars(_of("reprlib").aRepr).update(limits)


def _set_faulthandler(enabled: bool) -> None:  # noqa: FBT001 - what was captured
    (faulthandler.enable if enabled else faulthandler.disable)()


def _set_pycache_prefix(folder: str | None) -> None:
    sys.pycache_prefix = folder
