"""The opener that cells have installed for `urllib.request.urlopen`, as with a header of their own; its handlers."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import URL_OPENER
from nls_jupyter.saved_state.kinds import is_of, owner_of
from nls_jupyter.saved_state.places import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

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


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The class of handlers of HTTPS and the reducer of all of them, if they are imported.

    From Python 3.12 on each has a context of TLS, which nobody can pickle, and which mostly is as Python makes it.
    """
    if (kind := _https_handler()) is not None:
        yield kind, _reduce


def _https_handler() -> Any:
    """Their class; `None` where it is not imported, or Python has no TLS."""
    return getattr(sys.modules.get(URL_OPENER.module), "HTTPSHandler", None)


def _reduce(handler: Any) -> Any:
    """Without its contexts, where these are as usual but for certificates that they trust besides."""
    contexts = _contexts(handler)
    if not contexts or owner_of(type(handler), "__reduce_ex__") is not object:
        return NotImplemented
    usual, more = _contexts(_https_handler()()), {}  # which reads all that the system trusts
    if contexts.keys() != usual.keys():
        return NotImplemented
    for name, context in contexts.items():
        trusted, known = _certificates(context), _certificates(usual[name])
        if _settings(context) != _settings(usual[name]) or known - trusted:
            return NotImplemented
        more[name] = b"".join(sorted(trusted - known))
    kept = {name: value for name, value in vars(handler).items() if name not in contexts}
    return handler_with_usual_contexts, (type(handler), more), kept


def _contexts(handler: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(handler).items() if is_of(value, sys.modules["ssl"].SSLContext)}


def _settings(context: Any) -> tuple[object, ...]:
    """All that can be read of a context of TLS but the certificates that it trusts; not its own, and no protocols."""
    values = {name: getattr(context, name) for name in dir(context) if not name.startswith("__")}
    ciphers = [cipher["name"] for cipher in context.get_ciphers()]
    counts = context.cert_store_stats()
    unreadable = counts["x509"] - counts["x509_ca"]
    return type(context), ciphers, counts["crl"], unreadable, {k: v for k, v in values.items() if not callable(v)}


def _certificates(context: Any) -> set[bytes]:
    return set(context.get_ca_certs(binary_form=True))


def handler_with_usual_contexts(kind: Any, more: dict[str, bytes]) -> Any:
    """A handler with contexts as usual that trust some more certificates (DER); called by the unpickler."""
    handler = kind.__new__(kind)
    for name, context in _contexts(_https_handler()()).items():
        if more[name]:
            context.load_verify_locations(cadata=more[name])
        vars(handler)[name] = context
    return handler
