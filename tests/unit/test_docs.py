"""The documents say what the code does."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from daemon_process import ROOT
from nls_jupyter.between import errors
from nls_jupyter.gpu_process.kernel import GpuProcessKernel
from nls_jupyter.notebook import magics
from nls_jupyter.saved_state import parallel
from nls_scheduler import cli
from nls_scheduler.cli import exit_codes
from nls_scheduler.daemon import config
from nls_scheduler.daemon.config import NlsScheduler
from nls_scheduler.views.veil import Access

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from traitlets import HasTraits

DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/*.md")])
SOURCES = [
    path
    for folder in ("nls_jupyter", "node_scheduler", "server_extension", "tools", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
]
FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def generator(module: str) -> ModuleType:
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module(module)
    finally:
        sys.path.remove(str(DOCS))


@pytest.mark.parametrize(
    "module", ["draw_transitions", "write_reference", "write_saved_state", "write_troubleshooting"]
)
def test_what_is_generated_is_up_to_date(module: str) -> None:
    written = generator(module)
    text = written.DOCUMENT.read_text(encoding="utf-8")
    assert generator("blocks").updated(text, written.blocks()) == text, "run `make docs`"


def test_a_stale_block_is_replaced_and_a_missing_place_is_an_error() -> None:
    blocks = generator("blocks")
    text = "before\n<!-- begin a -->\nold\n<!-- end a -->\nafter\n"
    assert blocks.updated(text, {"a": "new"}) == text.replace("old", "\nnew\n")
    with pytest.raises(ValueError, match="'b'"):
        blocks.updated(text, {"b": "new"})


def headings(document: Path) -> set[str]:
    """The anchors that GitHub gives a document's headings."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", document.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(document: Path) -> Iterator[str]:
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    yield from (link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    for link in links(document):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), link
        assert not anchor or anchor in headings(target), link


def test_pages_that_the_code_and_the_manifests_name_are_there() -> None:
    deployed = [path for path in (ROOT / "node_scheduler" / "deploy").rglob("*") if path.is_file()]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (*SOURCES, *deployed))
    named = set(re.findall(r"\b(docs/[\w/-]+\.md)(?:#([\w-]+))?", text))
    assert named
    for page, anchor in sorted(named):
        assert (ROOT / page).exists(), page
        assert not anchor or anchor in headings(ROOT / page), (page, anchor)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_commands_in_the_documents_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    (commands,) = (a for a in cli._parser()._actions if isinstance(a, argparse._SubParsersAction))
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    magic = magics.GpuMagics.gpu.__doc__ or ""
    assert set(re.findall(r"(?:`|^\$ )nls ([\w-]+)", text, re.MULTILINE)) <= set(commands.choices)
    assert set(re.findall(r"(?:`|^\$ )make ([\w-]+)", text, re.MULTILINE)) <= set(targets)
    wanted = set(re.findall(r"`%gpu ([a-z]+)", text)) - {"auto"}  # named among what there is not yet
    assert all(f"%gpu {word} " in magic for word in wanted)


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_options_of_commands_in_the_documents_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8").replace("\\\n", " ")
    parser = cli._parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    # Of `nls run` what is after -- is somebody else's.
    lines = re.findall(r"(?:`|^ *\$ (?:sudo )?)nls ([a-z][\w-]*)((?: [^`\n|#]*)?)", text, re.MULTILINE)
    for command, rest in lines:
        known = options_of(commands.choices[command]) | options_of(parser)
        wanted = set(re.findall(r"(?<=\s)--?[a-z][\w-]*", rest.partition(" -- ")[0]))
        assert wanted <= known, (command, wanted - known)


def test_nothing_is_installed_by_a_name_that_no_index_has() -> None:
    text = "".join(d.read_text(encoding="utf-8") for d in DOCUMENTS if d.name != "CHANGELOG.md")
    assert "it is not on PyPI yet" in text
    # What one has already is given more: pip asks an index for the rest alone.
    assert set(re.findall(r"pip install (?:--?[\w-]+ )*['\"]?(nls-jupyter[^\s'\"`]*)", text)) == {"nls-jupyter[top]"}


def test_the_reference_has_the_numbers_of_threads() -> None:
    (told,) = re.findall(r"^\| `NLS_SAVE_THREADS` \|.*", (DOCS / "reference.md").read_text("utf-8"), re.MULTILINE)
    numbers = parallel.HOST_THREADS, parallel.FROM_DEVICE_THREADS, parallel.TO_DEVICE_THREADS
    assert tuple(int(number) for number in re.findall(r"\d+", told)) == numbers


def test_variables_in_the_documents_exist() -> None:
    named = set(re.findall(r"NLS_[A-Z_]+", "".join(d.read_text(encoding="utf-8") for d in DOCUMENTS)))
    sources = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    assert named
    assert {variable for variable in named if f'"{variable}"' not in sources} == set()


@pytest.mark.parametrize("section", [magics.GpuMagics, GpuProcessKernel, NlsScheduler])
def test_settings_in_the_documents_exist(section: type[HasTraits]) -> None:
    text = "".join(d.read_text(encoding="utf-8") for d in DOCUMENTS)
    named = set(re.findall(rf"(?:\bc\.|%config ){section.__name__}\.([a-z]\w*)", text))
    assert named
    assert named <= set(section.class_traits(config=True))


def test_what_the_page_of_a_shared_server_writes_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "shared_server.md").read_text(encoding="utf-8")
    (settings,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (drop_in,) = re.findall(r"```ini\n(.*?)```", text, re.DOTALL)
    (tmp_path / "nls_config.py").write_text(settings)
    monkeypatch.setattr(config.grp, "getgrnam", lambda group: SimpleNamespace(gr_gid=len(group)))
    loaded = config.load([], [str(tmp_path)], shared=True)
    assert loaded.access == Access(admin_gid=len("gpu-admins"), show_names="all")
    assert [queue.name for queue in loaded.policy.queues] == ["research", "teaching"]
    unit = (ROOT / "node_scheduler" / "deploy" / "systemd" / "nls.service").read_text(encoding="utf-8")
    (start,) = re.findall(r"^ExecStart=.+", unit, re.MULTILINE)
    assert drop_in.splitlines() == ["[Service]", "ExecStart=", f"{start} --simulate 2x16GiB"]


def test_the_reference_has_a_default_for_every_setting() -> None:
    assert "Undefined" not in (DOCS / "reference.md").read_text(encoding="utf-8")


def test_no_section_of_the_reference_is_empty() -> None:
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert "### `nls gpu return`\n" in text
    assert re.findall(r"^(### .*)\n+(?=###|<!-- end)", text, re.MULTILINE) == []


def test_the_reference_explains_every_exit_code_and_every_error() -> None:
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    codes = {value for key, value in vars(exit_codes).items() if key.isupper()}
    assert codes <= {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    kinds = [e.__name__ for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.GpuError)]
    assert [kind for kind in kinds if f"| `{kind}` |" not in text] == ["GpuError"]


def test_what_the_security_page_claims_is_shown_by_tests_that_exist() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = text.partition("| attempt |")[2].partition("\n\n")[0].splitlines()[2:]
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert table
    assert [row for row in table if not set(re.findall(r"`(test_\w+\.py)`", row)) & there] == []
    assert set(re.findall(r"`(test_\w+\.py)`", text)) <= there


def test_the_walk_through_the_code_names_what_is_there() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\| `([\w/]+\.py)` `(\w+)` \|", text, re.MULTILINE)
    assert len(steps) > 20
    missing = [
        (file, function)
        for file, function in steps
        if not re.search(rf"\bdef {function}\(", (ROOT / file).read_text(encoding="utf-8"))
    ]
    assert missing == []


def test_every_decision_has_a_number_and_a_short_text() -> None:
    decisions = sorted((DOCS / "decisions").glob("*.md"))
    assert decisions
    for number, path in enumerate(decisions, start=1):
        assert path.name.startswith(f"{number:04d}-")
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith(f"# {number}. ")
        assert len(lines) < 30


def test_the_picture_is_well_formed_and_described() -> None:
    root = ET.parse(DOCS / "story.svg").getroot()
    texts = {child.tag.rpartition("}")[2]: child.text for child in root}
    assert texts["title"]
    assert texts["desc"]
