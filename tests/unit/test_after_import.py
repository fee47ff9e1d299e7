"""A library is noticed when its import is complete, whoever imports it."""

from __future__ import annotations

import importlib
import logging
import sys

import pytest

from nls_jupyter.between.after_import import AfterImport


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A module on disk, and what was told about it."""
    (tmp_path / "a_library.py").write_text("half = __name__ in __import__('sys').modules\nwhole = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "a_library"
    sys.modules.pop("a_library", None)


@pytest.fixture
def told():
    return []


@pytest.fixture
def hook(library, told):
    hook = AfterImport({library: told.append})
    yield hook
    hook.remove()


def test_it_is_told_once_after_the_library_was_executed(hook, library, told):
    hook.install()
    module = importlib.import_module(library)
    assert told == [module]
    assert told[0].whole
    importlib.reload(module)
    assert told == [module]


def test_a_library_that_was_imported_before_is_found(hook, library, told):
    module = importlib.import_module(library)
    hook.install()
    assert told == [module]


def test_the_module_is_as_it_would_be_without(hook, library):
    plain = importlib.import_module(library)
    loader, spec = type(plain.__loader__), plain.__spec__.origin
    del sys.modules[library]
    hook.install()
    module = importlib.import_module(library)
    assert (type(module.__loader__), module.__spec__.origin) == (loader, spec)
    assert "exec_module" not in vars(module.__loader__) or module.__loader__.exec_module.__name__ == "exec_module"


def test_a_library_that_is_not_there_is_missed_as_ever(told):
    hook = AfterImport({"no_such_library": told.append})
    hook.install()
    try:
        with pytest.raises(ModuleNotFoundError, match="no_such_library"):
            importlib.import_module("no_such_library")
    finally:
        hook.remove()
    assert told == []


def test_what_fails_here_does_not_fail_the_users_import(library, caplog):
    hook = AfterImport({library: fail})
    hook.install()
    try:
        with caplog.at_level(logging.ERROR):
            assert importlib.import_module(library).whole
    finally:
        hook.remove()
    assert "What was to follow the import of a_library failed." in caplog.text


def test_who_wants_to_know_gets_what_has_failed(library, told):
    hook = AfterImport({library: fail}, lambda name, error: told.append((name, str(error))))
    hook.install()
    try:
        importlib.import_module(library)
    finally:
        hook.remove()
    assert told == [("a_library", "an unknown version")]


def fail(_):
    raise AttributeError("an unknown version")


def test_many_of_them_ask_everybody_else_once(library, monkeypatch):
    asked = []

    class Asked:
        def find_spec(self, name, *_):
            if name == library:  # others are looked for by hooks that are there already
                asked.append(name)

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    sys.meta_path.insert(0, Asked())
    for _ in range(12):
        AfterImport({library: lambda _: None}).install()
    importlib.import_module(library)
    assert asked == [library]
