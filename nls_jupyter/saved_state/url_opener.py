"""The opener that cells have installed for `urllib.request.urlopen`, as with a header of their own for downloads."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import URL_OPENER
from nls_jupyter.saved_state.places import Place

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from nls_jupyter.saved_state.places import Entry

_USUAL = {
    *("ProxyHandler", "UnknownHandler", "HTTPHandler", "HTTPDefaultErrorHandler", "HTTPRedirectHandler"),
    *("FTPHandler", "FileHandler", "HTTPErrorProcessor", "HTTPSHandler", "DataHandler"),
}


def place() -> Place:
    """Where it is."""
    return Place("opener of URLs", _entries, _put)


def _entries() -> Iterator[tuple[Hashable, Entry]]:
    opener = URL_OPENER.here(None) if URL_OPENER.module in sys.modules else None
    if opener is not None and not _is_usual(opener):
        yield "urllib", (opener,)


def _is_usual(opener: Any) -> bool:
    """Whether it may be the one that the first `urlopen` makes for itself; in the next process it does so again."""
    urls: Any = sys.modules[URL_OPENER.module]
    proxies = [handler.proxies for handler in opener.handlers if type(handler) is urls.ProxyHandler]
    usual = opener.addheaders == urls.OpenerDirector().addheaders and all(p == urls.getproxies() for p in proxies)
    return usual and {type(handler).__name__ for handler in opener.handlers} <= _USUAL


def _put(opener: Any) -> None:
    importlib.import_module(URL_OPENER.module).install_opener(opener)
