"""SQLAlchemy's engines come back without their connections, whatever was done with them."""

from __future__ import annotations

import pytest

from saved_state_processes import carried

pytest.importorskip("sqlalchemy", reason="pip install sqlalchemy to check its engines with it")
USED = """
import logging.handlers, sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker
logging.getLogger("sqlalchemy").addHandler(heard := logging.handlers.BufferingHandler(1 << 10))
engine = sqlalchemy.create_engine("sqlite:///{path}/a.db", pool_size=3, echo_pool=True, connect_args={{"timeout": 7}})
opened = []
def on_connect(connection, _):
    opened.append(connection.execute("PRAGMA busy_timeout").fetchone()[0])
    connection.execute("PRAGMA foreign_keys = ON")
sqlalchemy.event.listen(engine, "connect", on_connect)
with engine.begin() as gone:
    gone.execute(sqlalchemy.text("create table t (a int)"))
    gone.execute(sqlalchemy.text("insert into t values (1), (2)"))
known = sqlalchemy.MetaData(); known.reflect(engine); table = known.tables["t"]
session, shared, scoped = Session(engine), [engine], scoped_session(sessionmaker(engine))
scoped()
heard.flush()
"""
AGAIN = """
assert shared == [engine] and session.get_bind() is scoped.get_bind() is engine and gone.closed and opened == [7000]
assert session.execute(sqlalchemy.select(table.c.a)).scalars().all() == [1, 2]
assert session.execute(sqlalchemy.text("PRAGMA foreign_keys")).scalar() == 1
assert session.execute(sqlalchemy.text("select 'abc' regexp 'b.'")).scalar() == 1  # a function of SQLAlchemy's
assert engine.pool.size() == 3 and opened == [7000, 7000]
assert not any("recreating" in record.getMessage() for record in heard.buffer)
engine.dispose()
assert engine.connect().scalar(sqlalchemy.text("PRAGMA foreign_keys")) == 1
"""
OF_ALL = """
import sqlalchemy
from sqlalchemy.orm import Session
asked, flushed, opened = [], [], []
@sqlalchemy.event.listens_for(sqlalchemy.Engine, "before_cursor_execute")
def ask(conn, cursor, statement, parameters, context, executemany): asked.append(statement); return "ignored"
@sqlalchemy.event.listens_for(sqlalchemy.Engine, "before_cursor_execute", retval=True)
def change(conn, cursor, statement, *given): return statement.replace("1", "2"), given[0]
@sqlalchemy.event.listens_for(sqlalchemy.Engine, "connect")
def connected(connection, _): opened.append(1)
@sqlalchemy.event.listens_for(Session, "before_commit", named=True)
def committed(session, **_): flushed.append(session)
engine = sqlalchemy.create_engine("sqlite:///{path}/b.db")
"""
OF_ALL_AGAIN = """
def once():
    asked.clear(); flushed.clear(); opened.clear()
    with Session(made := sqlalchemy.create_engine("sqlite://")) as session:
        assert session.scalar(sqlalchemy.text("select 1")) == 2
        session.commit()
    assert len(flushed) == 1 and opened == [1], (flushed, opened)
    return asked[:]
assert once() == ["select 1"]
sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", ask)
assert once() == []
assert engine.connect().scalar(sqlalchemy.text("select 1")) == 2 and opened == [1, 1]
"""

WITH_OPTIONS = """
import sqlalchemy
told, engine = [], sqlalchemy.create_engine("sqlite:///{path}/a.db")
other = engine.execution_options(named="other").execution_options(more=1)
@sqlalchemy.event.listens_for(other, "before_cursor_execute")
def ask(*_): told.append("other")
@sqlalchemy.event.listens_for(engine, "before_cursor_execute")
def ask_too(*_): told.append("engine")
@sqlalchemy.event.listens_for(other, "engine_connect", named=True)
def connected(**_): told.append(other.get_execution_options()["named"])
def told_by(asked):
    told.clear()
    with asked.connect() as held: held.exec_driver_sql("select 1")
    return told[:]
"""
WITHIN_LOOP = """
import asyncio, sqlalchemy, sqlite3
from sqlalchemy.dialects.sqlite.aiosqlite import SQLiteDialect_aiosqlite
from sqlalchemy.util import await_only, greenlet_spawn
open_one = lambda: sqlite3.connect("{path}/a.db")
pool, opened = sqlalchemy.AsyncAdaptedQueuePool(open_one, dialect=SQLiteDialect_aiosqlite()), []
@sqlalchemy.event.listens_for(pool, "connect")
def on_connect(connection, _):
    await_only(asyncio.sleep(0))  # as all that it asks the database for
    opened.append(connection)
async def connect(): return await greenlet_spawn(pool.connect)
async def connect_twice():
    held = await asyncio.gather(connect(), connect())
    for each in held: await greenlet_spawn(each.close)
    for each in opened: each.close()
"""


def test_an_engine_that_was_used_comes_back_and_connects_again(tmp_path):
    assert carried(USED.format(path=tmp_path), AGAIN) == []


def test_an_engine_that_was_not_used_asks_its_database_at_the_first_connection(tmp_path):
    before = f"import sqlalchemy\nengine = sqlalchemy.create_engine('sqlite:///{tmp_path}/a.db')"
    after = "with engine.connect(): assert engine.dialect.default_isolation_level == 'SERIALIZABLE'"
    assert carried(before, after) == []


def test_what_listens_to_all_engines_goes_on_to_listen(tmp_path):
    assert carried(OF_ALL.format(path=tmp_path), OF_ALL_AGAIN) == []


def test_what_listens_to_an_engine_with_other_options_goes_on_to_listen(tmp_path):
    after = "assert told_by(other) == ['other', 'other', 'engine'] and told_by(engine) == ['engine'], told"
    assert carried(WITH_OPTIONS.format(path=tmp_path), after + "\nassert other.pool is engine.pool") == []


def test_a_pool_for_asyncio_connects_several_tasks_at_once(tmp_path):
    after = "asyncio.run(connect_twice())\nassert len(opened) == 2"
    assert carried(WITHIN_LOOP.format(path=tmp_path), after) == []


def test_a_statement_that_was_executed_before_finds_its_columns_again(tmp_path):
    before = USED.format(path=tmp_path) + "def ask(): return session.execute(sqlalchemy.select(table)).mappings().all()"
    after = "assert [row[table.c.a] for row in ask()] == [1, 2]"
    assert carried(before + "\nassert len(ask()) == 2\nsession.commit()", after) == []


def test_a_connection_that_is_in_use_is_named(tmp_path):
    lost = carried(f"import sqlalchemy\nheld = sqlalchemy.create_engine('sqlite:///{tmp_path}/a.db').connect()", "")
    assert lost == [["held", "it holds a database connection"]]


def test_a_database_in_memory_is_named(tmp_path):
    used = "with engine.connect() as held: held.execute(sqlalchemy.text('create table t (a int)'))"
    lost = carried(f"import sqlalchemy\nengine = sqlalchemy.create_engine('sqlite://')\n{used}", "")
    assert {name for name, _ in lost} >= {"engine", "held"}


def test_an_ordered_set_of_sqlalchemys_keeps_its_order():
    before = "import sqlalchemy.util\nordered = sqlalchemy.util.OrderedSet(['c', 'a', 'b'])"
    assert carried(before, "assert list(ordered) == ['c', 'a', 'b'] and 'a' in ordered") == []
