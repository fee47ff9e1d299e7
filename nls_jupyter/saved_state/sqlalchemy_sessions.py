"""SQLAlchemy's sessions, with the objects in them.

SQLAlchemy pickles an object of a mapped class as one that belongs to no session: it would not load what it has not
loaded so far, and a session would write nothing of what is changed in it. Sessions are known by numbers, which each
process begins anew.
"""

from __future__ import annotations

import copyreg
import importlib
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import seams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """Sessions, if SQLAlchemy's ORM is imported."""
    if (found := sys.modules.get("sqlalchemy.orm")) is not None and seams.SQLALCHEMY_SESSIONS.here(None) is not None:
        yield found.Session, _reduce_session


def _reduce_session(session: Any) -> Any:
    kept = {name: value for name, value in vars(session).items() if name not in ("identity_map", "hash_key")}
    state = kept, list(session.identity_map.values())
    return copyreg.__newobj__, (type(session),), state, None, None, give_session  # type: ignore[attr-defined]


def give_session(session: Any, state: tuple[dict[str, Any], list[Any]]) -> None:
    """Give it what it had, and have its objects belong to it; called by the unpickler."""
    kept, loaded = state
    orm, inspect = importlib.import_module("sqlalchemy.orm"), importlib.import_module("sqlalchemy").inspect
    vars(session).update({**vars(orm.Session()), **kept})
    seams.SQLALCHEMY_SESSIONS.here()[session.hash_key] = session
    for order, each in enumerate(session.new):
        inspect(each).insert_order = order
    for each in (*session.new, *loaded):
        inspect(each).session_id = session.hash_key
    for each in loaded:
        session.identity_map.add(inspect(each))
        if inspect(each).modified:
            orm.attributes.flag_dirty(each)  # else nobody would hold it until it is written
