"""SQLAlchemy's sessions come back with their objects, of classes in a module of the user's."""

from __future__ import annotations

import pytest

from saved_state_processes import carried, carried_on

pytest.importorskip("sqlalchemy", reason="pip install sqlalchemy to check its sessions with it")
MODULE = """
from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
class Base(DeclarativeBase): pass
class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    things: Mapped[list["Thing"]] = relationship()
class Thing(Base):
    __tablename__ = "things"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
"""
BEFORE = """
import sqlalchemy, sys
sys.path.insert(0, "{path}")
from of_the_users import *
from sqlalchemy.orm import Session, object_session
engine = sqlalchemy.create_engine("sqlite:///{path}/a.db")
Base.metadata.create_all(engine)
with Session(engine) as session: session.add(User(name="x", things=[Thing()])); session.commit()
def names():
    with Session(engine) as another: return list(another.scalars(sqlalchemy.select(User.name).order_by(User.id)))
session = Session(engine, expire_on_commit=False)
user = session.get(User, 1)
session.commit()
"""


@pytest.fixture
def before(tmp_path):
    (tmp_path / "of_the_users.py").write_text(MODULE)
    return BEFORE.format(path=tmp_path)


@pytest.mark.parametrize("carried", [carried, carried_on])
def test_an_object_is_in_its_session_as_before(before, carried):
    after = """
    assert object_session(user) is session and session.get(User, 1) is user and len(user.things) == 1
    user.name = "y"
    session.commit()
    assert names() == ["y"]
    assert object_session(Session(engine).get(User, 1)) is not session
    """
    assert carried(before, after) == []


def test_what_is_not_written_yet_is_written_in_order(before):
    cell = "user.name = 'y'; del user; session.add_all([new := User(name='z'), User(name='last')])"
    after = "session.commit(); assert names() == ['y', 'z', 'last'] and object_session(new) is session"
    assert carried(before + cell, after) == []


def test_what_is_not_written_yet_can_be_taken_back(before):
    after = "session.rollback(); assert user.name == 'x' and names() == ['x']"
    assert carried(before + "user.name = 'y'", after) == []
