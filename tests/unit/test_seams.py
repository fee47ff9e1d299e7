"""What a version of another package lacks that we rely on without a promise is told, and nothing else is."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import nls_jupyter
from left_out import thinned
from nls_jupyter.between import seams
from nls_jupyter.between.seam import MissingSeamError, Seam
from nls_jupyter.between.seams import PYTHON_UNPICKLER, RELOADER, SEAMS
from nls_jupyter.notebook.relay import show_once
from nls_jupyter.saved_state import classes, handles, ipython_session, pickler, tolerant
from saved_state_roundtrip import Roundtrip, cells

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kernel


def owner(seam: Seam) -> Any:
    _, _, kind = seam.owner.partition(":")
    module = pytest.importorskip(seam.module, reason=f"{seam.package} is not installed here")
    return getattr(module, kind) if kind else module


def rename(seam: Seam, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a later version might."""
    has_it = owner(seam)
    if seam.set_in:
        its_own = types.FunctionType((lambda *_: None).__code__, {"__name__": has_it.__module__})
        monkeypatch.setattr(has_it, seam.set_in, its_own)
        return
    try:
        for kind in getattr(has_it, "__mro__", [has_it]):
            if seam.name in vars(kind):
                monkeypatch.setattr(kind, f"{seam.name}_renamed", vars(kind)[seam.name], raising=False)
                monkeypatch.delattr(kind, seam.name)
    except TypeError:  # a class that is written in C
        monkeypatch.setattr(sys.modules[seam.module], has_it.__name__, type(has_it.__name__, (), {}))


def renamed(seam: Seam) -> Seam:
    """The same, as if the installed version called it otherwise: what is written in C keeps what it has."""
    return Seam(seam.owner, f"{seam.name}_of_before", seam.seen_in, seam.without)


OF_EVERY_BUILD = thinned([seam for seam in SEAMS if not seam.when_asked], 6, "private names of others")


@pytest.mark.parametrize("seam", OF_EVERY_BUILD, ids=lambda seam: f"{seam.owner}.{seam.name}")
def test_the_installed_versions_have_what_we_rely_on(seam: Seam) -> None:
    owner(seam)
    assert not seam.missing


@pytest.mark.parametrize("seam", OF_EVERY_BUILD, ids=lambda seam: f"{seam.owner}.{seam.name}")
def test_one_sentence_says_what_is_missing_and_what_does_not_work(seam: Seam, monkeypatch: pytest.MonkeyPatch) -> None:
    rename(seam, monkeypatch)
    (told,) = (sentence for sentence in seams.missing(seam.module) if f".{seam.name}, " in sentence)
    title = "Python" if seam.package in sys.stdlib_module_names else seam.package
    assert re.match(rf"{title} \d[\w.+]* has no ", told), told
    where = seam.owner.partition(":")[2] or seam.module
    assert told.endswith(f" {where}.{seam.name}, seen in {seam.seen_in}: {seam.without}."), told


def test_a_method_that_somebody_has_replaced_says_nothing_of_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = threading.Thread.__init__
    monkeypatch.setattr(threading.Thread, "__init__", lambda self, *args, **named: plain(self, *args, **named))
    assert not seams.THREAD_TARGET.missing


@pytest.mark.parametrize("what", ["module", "class"])
def test_a_module_or_class_that_is_gone_is_told_like_a_name(what: str) -> None:
    there = RELOADER
    importlib.import_module(there.module)
    module, _, name = there.owner.partition(":")
    gone = f"{module}_renamed:{name}" if what == "module" else f"{module}:{name}Renamed"
    assert Seam(gone, there.name, there.seen_in, there.without, there.set_in).missing


def test_nothing_is_imported_to_find_out_what_is_missing() -> None:
    code = """
import sys
from nls_jupyter.between import seams
import IPython  # as in every kernel
before = set(sys.modules)
assert seams.missing() == []
hook = seams.after_imports(print)
hook.install()
assert set(sys.modules) == before, set(sys.modules) - before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_library_is_looked_at_when_the_user_imports_it_and_its_later_modules_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_library").mkdir()
    (tmp_path / "a_library" / "__init__.py").write_text("__version__ = '9.1'\n_kept = 1\n")
    (tmp_path / "a_library" / "later.py").write_text("class Kind: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    table = (
        Seam("a_library", "_kept", "8.0", "nothing"),
        Seam("a_library", "_renamed", "8.0", "one thing does not work"),
        Seam("a_library.gone.inner", "_moved", "8.0", "another does not"),
        Seam("a_library.later.inner", "_unseen", "8.0", "nobody can tell before it is imported"),
        Seam("a_library.later:Kind", "_renamed", "8.0", "a third does not"),
        Seam("a_library", "_of_some_builds", "8.0", "a fourth does not", when_asked=True),
    )
    monkeypatch.setattr(seams, "SEAMS", table)
    told: list[str] = []
    hook = seams.after_imports(told.append)
    hook.install()
    try:
        importlib.import_module("a_library")
        assert told == [
            "a_library 9.1 has no a_library._renamed, seen in 8.0: one thing does not work.",
            "a_library 9.1 has no a_library.gone.inner._moved, seen in 8.0: another does not.",
        ]
        importlib.import_module("a_library.later")
        assert told[2:] == ["a_library 9.1 has no Kind._renamed, seen in 8.0: a third does not."]
        assert any("a_library.later.inner._unseen" in sentence for sentence in seams.missing("a_library"))
    finally:
        hook.remove()
        for name in [name for name in sys.modules if name.startswith("a_library")]:
            del sys.modules[name]


# -- who asks
def test_who_asks_for_what_is_missing_gets_the_sentence_or_what_to_take_instead() -> None:
    gone = renamed(seams.INTERPRETER_FLAGS)
    assert gone.of(subprocess, list)() == []
    assert gone.here(None) is None
    with pytest.raises(MissingSeamError, match=re.escape(gone.told().rstrip("."))):
        gone.here()


def test_an_object_that_is_not_as_others_of_its_kind_is_no_version_that_lacks_something() -> None:
    with pytest.raises(AttributeError, match="_target"):
        seams.THREAD_TARGET.of(threading.Thread.__new__(threading.Thread))


def test_without_a_way_to_show_tracebacks_the_shell_shows_them_as_it_does() -> None:
    class Shell:
        """Of a later version."""

    shell = Shell()
    show_once(shell)
    assert vars(shell) == {}


def test_a_setting_of_autoreload_that_cannot_be_read_is_told_and_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rename(RELOADER, monkeypatch)
    magics_manager = types.SimpleNamespace(registry={"AutoreloadMagics": object()})
    with pytest.raises(MissingSeamError, match=re.escape(RELOADER.told().rstrip("."))):
        ipython_session._autoreload(types.SimpleNamespace(magics_manager=magics_manager))


@pytest.mark.parametrize(
    ("module", "name", "code"),
    [
        (handles, "RLOCK_IS_OWNED", "import threading; x = threading.RLock()"),
        (pickler, "FUNCTION_REDUCE", "def x(): pass"),
        (seams, "COMM_CLOSED", "import comm; x = comm.create_comm(target_name='x', primary=False)"),
        (seams, "TRAIT_NOTIFIERS", "import traitlets; x = traitlets.HasTraits()"),
        (seams, "TORCH_STORAGE", "import torch; x = torch.ones(3)"),
        (seams, "TORCH_HOOKS", "import torch; x = torch.ones(3)"),
    ],
)
def test_a_variable_that_needs_what_is_missing_is_not_saved_for_that_reason_and_the_others_are(
    module: Any, name: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "torch" in code:
        pytest.importorskip("torch")
    gone = renamed(getattr(module, name))
    monkeypatch.setattr(module, name, gone)
    namespace = cells(code)
    back = Roundtrip({"x": namespace["x"], "y": [1]}, function_globals=namespace)
    assert back.unsaved == {"x": f"it cannot be pickled ({gone.told().rstrip('.')})"}
    assert back.namespace == {"y": [1]}


def test_a_save_without_a_way_to_see_what_pickle_notes_in_classes_leaves_its_notes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(classes, "SLOT_NAMES", renamed(classes.SLOT_NAMES))
    namespace = cells("class C: pass\nx = C()")
    assert type(Roundtrip({"x": namespace["x"]}, function_globals=namespace)["x"]).__name__ == "C"


def test_without_pythons_own_unpickler_what_cannot_come_back_alone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pickle, "_Unpickler")
    with pytest.raises(MissingSeamError, match=re.escape(PYTHON_UNPICKLER.told().rstrip("."))):
        tolerant._NoUnpickler()


# -- nobody else
# Documented by Python and by IPython, parts of the types of our messages, and how the debugger's packages begin, by
# which its threads are known.
DOCUMENTED = {
    "_exit",
    "_getframe",
    "_is_gil_enabled",
    "_xoptions",
    "_replace",
    "_oh",
    "_dh",
    "_ih",
    "_i",
    "_ii",
    "_iii",
    "_exit_code",
}
DOCUMENTED |= {"_request", "_reply", "_pydevd"}
PRIVATE = re.compile(r"(?:\w+[.:])*_[A-Za-z]\w*(?:[.:]\w+)*")
TABLE = Path(seams.__file__)


def is_private(path: str) -> bool:
    """A name, or a path with one, that begins with an underscore; what also ends with one is a protocol's."""
    names = re.split(r"[.:]", path)
    return any(re.fullmatch(r"_[A-Za-z]\w*", name) and not name.endswith("_") for name in names)


def own_names(tree: ast.AST) -> set[str]:
    """All that is defined there, slots and attributes included."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            found.add(node.attr)
    return found


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def used(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Line, name or path, and whether it is asked of `self`."""
    in_texts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr, is_self(node.value)
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("nls_"):
            yield from ((node.lineno, f"{node.module}.{each.name}", False) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, each.name, False) for each in node.names)
        elif isinstance(node, ast.Constant) and id(node) not in in_texts and PRIVATE.fullmatch(str(node.value)):
            yield node.lineno, str(node.value), False


def strangers(trees: dict[str, ast.AST]) -> list[str]:
    """Where a private name is used that is neither defined in the same file nor, of `self`, in a class of ours."""
    own = {where: own_names(tree) for where, tree in trees.items()}
    everywhere = set().union(*own.values())
    return [
        f"{where}:{line}: {name}"
        for where, tree in trees.items()
        for line, name, of_self in used(tree)
        if is_private(name) and name not in DOCUMENTED and name not in (everywhere if of_self else own[where])
    ]


def test_private_names_of_others_are_in_the_table_only() -> None:
    folder = Path(nls_jupyter.__file__).parent
    files = [path for path in sorted(folder.rglob("*.py")) if path != TABLE]
    assert strangers({str(path.relative_to(folder)): ast.parse(path.read_text("utf-8")) for path in files}) == []


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import torch\ntorch._neg_view(1)", "_neg_view"),
        ("class P(Other):\n    def f(self):\n        return self._function_reduce(1)", "_function_reduce"),
        ("from cloudpickle.cloudpickle import _lookup", "cloudpickle.cloudpickle._lookup"),
        ("import _weakrefset", "_weakrefset"),
        ("getattr(thread, '_target', None)", "_target"),
        ("import_module('pandas._config.config')", "pandas._config.config"),
        ("KINDS = ('module:_Kind',)", "module:_Kind"),
    ],
)
def test_one_that_is_used_elsewhere_is_found(code: str, name: str) -> None:
    assert [found.rpartition(" ")[2] for found in strangers({"there": ast.parse(code)})] == [name]


@pytest.mark.parametrize(
    "code",
    [
        "class P:\n    def f(self, other):\n        self._own = other._own",
        "def _own(): pass\nf'{kind}_port'\nthing._repr_html_()\nthing.__dict__",
    ],
)
def test_ones_own_and_those_of_protocols_are_not(code: str) -> None:
    assert strangers({"there": ast.parse(code)}) == []
