"""Exceptions come back as they are, whatever their class does with what it is called with."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from saved_state_roundtrip import cells, check_in_a_new_process, of_user, roundtrip

CASES = {
    "one that gives its base another text": """
class ApiError(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code}: {message}"); self.code = code
x = ApiError(404, "not found")
""",
    "one that gives its base nothing": """
class E(ValueError):
    def __init__(self, *, name): super().__init__(); self.name = name
    def __str__(self): return f"no {self.name}"
x = E(name="n")
""",
    "one of a dataclass": """
from dataclasses import dataclass
@dataclass
class E(Exception):
    code: int
    text: str = "t"
x = E(code=3)
""",
    "one with slots": """
class E(Exception):
    __slots__ = ("code", "__own", "unset")
    def __init__(self, code): self.code = code; self.__own = [code]
x = E(5)
""",
    "one with its own __new__": """
class E(KeyError):
    def __new__(cls, a, b): made = super().__new__(cls, a); made.b = b; return made
    def __init__(self, a, b): pass
x = E("a", "b")
""",
    "one that refuses to be set": """
class E(Exception):
    def __init__(self, code, text): super().__init__(text); self.__dict__["code"] = code
    def __setattr__(self, name, value): raise AttributeError(name)
x = E(1, "t")
""",
    "a file that is not there": """
class E(FileNotFoundError):
    def __init__(self, path): super().__init__(2, "no such file", path, None, "other")
x = E("p")
""",
    "a file that its __new__ names": """
class E(OSError):
    def __new__(cls, path): return super().__new__(cls, 2, "no such file", path)
x = E("p")
""",
    "one that would block": """
class E(BlockingIOError):
    def __init__(self, done): super().__init__(11, "later", done)
x = E(7)
""",
    "the end of an iterator": """
class E(StopIteration):
    def __init__(self, a, b): super().__init__(a + b)
x = E(1, 2)
""",
    "an exit": """
class E(SystemExit):
    def __init__(self, code, text): super().__init__(code); self.text = text
x = E(3, "t")
""",
    "bytes that are no text": """
class E(UnicodeDecodeError):
    def __init__(self, content): super().__init__("utf-8", content, 0, 1, "bad")
x = E(b"\\xff")
""",
    "a text that cannot be written": """
class E(UnicodeEncodeError):
    def __init__(self, content): super().__init__("ascii", content, 0, 1, "bad")
x = E("\\xff")
""",
    "an import": """
class E(ImportError):
    def __init__(self, module): super().__init__("no " + module, name=module, path="/p")
x = E("m")
""",
    "an error of syntax": """
class E(SyntaxError):
    def __init__(self, line): super().__init__("bad", ("f", line, 3, "text", line, 4))
x = E(9)
""",
    "a name": """
class E(NameError):
    def __init__(self, a, b): super().__init__(a + b, name=a)
x = E("a", "b")
""",
    "an attribute of two lines": """
class E(KeyError, AttributeError):
    def __init__(self, a, b): super().__init__(a); self.name = b
x = E("a", "b")
""",
    "a group of its own arguments": """
class E(ExceptionGroup):
    def __new__(cls, errors): return super().__new__(cls, "several", errors)
    def __init__(self, errors): self.code = 3
x = E([ValueError(1), TypeError(2)])
""",
    "a group that says something else of itself": """
class E(ExceptionGroup):
    message = property(lambda self: "else")
    def __init__(self, text, errors): self.text = text
x = E("text", [ValueError(1)])
""",
    "notes, no cause to be shown, changed arguments": """
class E(UnicodeDecodeError):
    def __init__(self, content): super().__init__("utf-8", content, 0, 1, "bad")
x = E(b"\\xff")
x.add_note("n")
x.__suppress_context__ = True
x.args = ("something", "else")
""",
    "one that leads to its owner, and back": """
class Owner:
    def __repr__(self): return "Owner"
class E(Exception):
    def __init__(self, owner, text): super().__init__(owner, text); owner.error = self
    def __str__(self): return self.args[1]
x = E(Owner(), "t")
""",
    "one with a way of its own": """
class E(Exception):
    def __init__(self, a, b): super().__init__(a); self.b = b
    def __reduce__(self): return type(self), (self.args[0], self.b)
x = E(1, 2)
""",
    "one that takes its state": """
class E(Exception):
    def __init__(self, a, b): super().__init__(a); self.b = b
    def __setstate__(self, state): self.b = state["b"]
x = E(1, 2)
""",
}
FIELDS = [
    *("errno", "strerror", "filename", "filename2", "characters_written", "value", "code", "encoding", "object"),
    *("start", "end", "reason", "msg", "name", "path", "name_from", "lineno", "offset", "text", "end_lineno"),
    *("end_offset", "print_file_and_line", "message", "__suppress_context__", "_E__own"),
]


def shown(error: BaseException) -> list[Any]:
    inside = [shown(one) for one in getattr(error, "exceptions", ())]
    own = {name: value for name, value in vars(error).items() if type(value).__module__ == "builtins"}
    fields = [repr(getattr(error, name, "nothing")) for name in FIELDS]
    return [type(error).__name__, repr(error), str(error), repr(error.args), own, fields, inside]


@pytest.mark.parametrize("source", CASES.values(), ids=CASES)
def test_an_exception_comes_back_as_it_is(source):
    before = cells(source + "\nagain = [x, x.args]")
    result = of_user(before)
    assert not result.unsaved
    assert not result.report.missing
    assert shown(result["x"]) == shown(before["x"])
    assert result["again"][0] is result["x"]
    if "__reduce__" not in source:
        assert result["again"][1] is result["x"].args


def test_what_leads_back_to_an_exception_finds_it():
    result = roundtrip(CASES["one that leads to its owner, and back"])
    assert result["x"].args[0].error is result["x"]


ARGUMENTS = (
    *((), ("a",), ("a", 2), (2, "no", "file"), (2, "no", "file", None, "other"), (11, "later", 7)),
    *(("utf-8", b"\xff", 0, 1, "bad"), ("utf-8", "\xff", 0, 1, "bad"), ("\xff", 0, 1, "bad")),
    *(("bad", ("f", 1, 2, "text", 1, 3)), ("several", [ValueError(1)])),
)


def test_what_is_python_s_own_comes_back_with_all_its_fields():
    before = {}
    kinds = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
    for kind in dict.fromkeys(kinds):
        for number, args in enumerate(ARGUMENTS):
            for how in "itself", "a child":
                made = type(kind.__name__, (kind,), {"__module__": "__main__"}) if how == "a child" else kind
                try:
                    error = made(*args)
                except (TypeError, ValueError):
                    continue
                before[f"{kind.__name__}_{number}_{how.partition(' ')[0]}"] = error
    assert len(before) > 600
    result = of_user({"__name__": "__main__", **before})
    assert not result.unsaved
    assert not result.report.missing
    assert {name: shown(result[name]) for name in before} == {name: shown(error) for name, error in before.items()}


def test_what_an_exception_has_works_in_a_new_process():
    check_in_a_new_process(
        CASES["one that gives its base another text"] + "errors = {404: [x]}",
        """
assert errors[404][0] is x and x.code == 404 and str(x) == "404: not found"
try:
    raise x
except ApiError as error:
    assert error is x
assert str(ApiError(1, "t")) == "1: t"
""",
    )


def test_what_lacks_an_attribute_is_said_not_to_come_back():
    result = roundtrip("""
try:
    [].nothing
except AttributeError as error:
    x = error
""")
    assert result["x"].name == "nothing"
    assert result["x"].obj is None
    assert any("looked for in" in change.change for change in result.manifest.changed)
