"""Classes of cells that SQLAlchemy has mapped are named; what else it makes comes back."""

from __future__ import annotations

import pytest

from saved_state_roundtrip import roundtrip

pytest.importorskip("sqlalchemy", reason="pip install sqlalchemy to check its classes with it")
MAPPED = {
    "a declarative base": """
from sqlalchemy.orm import DeclarativeBase
class Base(DeclarativeBase): pass
class User(Base):
""",
    "a base of before": """
from sqlalchemy.orm import declarative_base
Base = declarative_base()
class User(Base):
""",
    "a registry": """
from sqlalchemy.orm import registry
Base = registry()
@Base.mapped
class User:
""",
}
COLUMNS = """
    __tablename__ = "user"
    id = sqlalchemy.Column(sqlalchemy.Integer, primary_key=True)
x = User(id=1)
other = [1]
class Plain: pass
plain = Plain()
"""


@pytest.mark.parametrize("source", MAPPED.values(), ids=MAPPED)
def test_a_mapped_class_is_named_when_it_is_saved(source):
    result = roundtrip(f"import sqlalchemy{source}{COLUMNS}")
    assert set(result.unsaved) == {"Base", "User", "x"}
    assert all("SQLAlchemy has mapped" in reason for reason in result.unsaved.values())
    assert not result.report.missing
    assert result["other"] == [1]
    assert type(result["plain"]) is result["Plain"]


def test_a_table_comes_back():
    result = roundtrip("""
import sqlalchemy.orm
known = sqlalchemy.MetaData()
table = sqlalchemy.Table("t", known, sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True))
asked = sqlalchemy.select(table).where(table.c.id == 3)
""")
    assert not result.unsaved
    assert not result.report.missing
    assert result["table"].metadata is result["known"]
    assert str(result["asked"]).split() == ["SELECT", "t.id", "FROM", "t", "WHERE", "t.id", "=", ":id_1"]
