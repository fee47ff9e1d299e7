"""How Sphinx makes the site of these pages: `make site`. The pages are also read as they are, in the repository."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "node_scheduler"))

from nls_scheduler import __version__  # noqa: E402 - the one place of the version

REPOSITORY = "https://github.com/nls-jupyter/nls-jupyter"

project = "nls-jupyter"
author = "The nls-jupyter contributors"
copyright = f"2026, {author}"  # noqa: A001 - Sphinx's name for it
version = release = __version__

extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["images"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4  # as GitHub makes them, so that links with anchors lead to the same place in both
nitpicky = True
# What is copied is what is to be typed.
copybutton_prompt_text = r"\$ |In \[\d*\]: | {3}\.\.\.: "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "pydata_sphinx_theme"
html_title = "nls-jupyter"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_sidebars = {"index": []}
html_theme_options = {
    "github_url": REPOSITORY,
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}

_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_INCLUDED = re.compile(r"```\{include\} (\S+)\n```")


class Mermaid(SphinxDirective):
    """A diagram, drawn in the reader's browser by mermaid.min.js, which lies on the site itself."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Called for each fence of that name."""
        text = nodes.Text("\n".join(self.content)).astext()
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        self.env.metadata[self.env.docname]["mermaid"] = "drawn"
        return [nodes.raw("", f'<pre class="mermaid">\n{escaped}\n</pre>', format="html")]


def prepare(_: Sphinx, name: str, source: list[str]) -> None:
    """Files that a page includes, and links to what is no page of the site. Called for each page."""
    page = HERE / f"{name}.md"
    text = _with_links(source[0], page, page.parent)
    source[0] = _INCLUDED.sub(lambda found: _included((page.parent / found[1]).resolve(), page), text)


def _included(file: Path, page: Path) -> str:
    return _with_links(file.read_text(encoding="utf-8"), page, file.parent)


def _with_links(text: str, page: Path, beside: Path) -> str:
    """`text`, whose links are relative to the folder `beside`, as part of `page`: to pages, else to the repository."""

    def link(found: re.Match[str]) -> str:
        target, anchor = (beside / found[1]).resolve(), found[2] or ""
        if target.is_relative_to(HERE) and not target.is_dir():
            return f"]({os.path.relpath(target, page.parent)}{anchor})"
        kind = "tree" if target.is_dir() else "blob"
        return f"]({REPOSITORY}/{kind}/main/{target.relative_to(HERE.parent)}{anchor})"

    return _LINK.sub(link, text)


def draw(app: Sphinx, page: str, *_: Any) -> None:
    """Only pages with a diagram load what draws it. Called for each page."""
    if app.env.metadata.get(page, {}).get("mermaid"):
        app.add_js_file("mermaid.min.js", defer="defer")
        app.add_js_file("diagrams.js", defer="defer")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_directive("mermaid", Mermaid)
    app.connect("source-read", prepare)
    app.connect("html-page-context", draw)
    app.connect("build-finished", lambda app, _: shutil.copy(_mermaid(), Path(app.outdir) / "_static"))


def _mermaid() -> Path:
    """Fetched by `make site`, and not in the repository. Raises FileNotFoundError."""
    place = HERE.parent / "build" / "mermaid" / "package" / "dist" / "mermaid.min.js"
    if not place.exists():
        raise FileNotFoundError(f"{place} is missing: `make site` fetches it, for which npm is needed.")
    return place
