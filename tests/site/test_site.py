"""The documentation's site: every page has its place in it, and it can be read on a telephone, too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from daemon_process import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

DOCS = ROOT / "docs"
KINDS = ("tutorials", "how_to", "lookup", "explanation")
WIDE, NARROW = 1200, 400
# What reaches beyond the page's right edge, and does not scroll by itself.
BEYOND_THE_EDGE = """() => [...document.querySelectorAll('article *')]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
    .filter(e => !e.closest('pre, table, .mermaid'))
    .map(e => e.tagName + ' ' + e.textContent.slice(0, 80))"""


def listed(page: str) -> list[str]:
    """What the page's table of contents names."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    entries = re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
    return [line for entry in entries for line in entry.splitlines() if line and not line.startswith(":")]


def test_every_page_is_of_one_of_four_kinds() -> None:
    assert tuple(listed("index")) == KINDS
    pages = [page for kind in KINDS for page in listed(kind)]
    assert sorted(pages) == sorted({path.stem for path in DOCS.glob("*.md")} - {*KINDS, "index"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_s_own_page_says_what_each_of_its_pages_is_for(kind: str) -> None:
    text = (DOCS / f"{kind}.md").read_text(encoding="utf-8").partition("```{toctree}")[0]
    assert [page for page in listed(kind) if f"({page}.md)" not in text] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made anew from the pages, without warnings."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed (make site)")
    if not (ROOT / "build" / "mermaid" / "package").exists():
        pytest.skip("what draws diagrams was not fetched (make site)")
    folder = tmp_path_factory.mktemp("site")
    quiet = ["--fail-on-warning", "--keep-going", "--quiet"]
    command = [sys.executable, "-m", "sphinx", *quiet, "--doctree-dir", str(folder / "doctrees"), str(DOCS)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONWARNINGS"}
    done = subprocess.run(
        [*command, str(folder / "html")], capture_output=True, text=True, env=environment, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture
def page() -> Iterator[Page]:
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


@pytest.mark.long("the documentation's site in a real browser")
@pytest.mark.timeout(300)
def test_no_page_is_wider_than_the_screen_and_diagrams_are_drawn(site: Path, page: Page) -> None:
    broken: list[str] = []
    page.on("pageerror", lambda error: broken.append(str(error)))
    for width in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": 900})
        for path in sorted(DOCS.glob("*.md")):
            page.goto((site / f"{path.stem}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, path.stem)
            assert page.evaluate(BEYOND_THE_EDGE) == [], (width, path.stem)
            if "```mermaid" in path.read_text(encoding="utf-8"):
                page.locator("pre.mermaid svg").first.wait_for()
    assert broken == []


@pytest.mark.long("the documentation's site is built")
@pytest.mark.timeout(150)
def test_files_outside_the_docs_are_linked_in_the_repository(site: Path) -> None:
    hub = (site / "zero_to_jupyterhub.html").read_text(encoding="utf-8")
    values = "node_scheduler/deploy/jupyterhub/values.yaml"
    assert f'href="https://github.com/nls-jupyter/nls-jupyter/blob/main/{values}"' in hub
    assert 'href="architecture.html"' in (site / "contributing.html").read_text(encoding="utf-8")
