"""A real browser on a real JupyterLab: what a test does with its page."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Error, expect, sync_playwright

from daemon_process import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BUILT = ROOT / "nls_jupyter" / "labextension"
PATIENCE_MS = 30_000
LONG = pytest.mark.long("what people see and do in a real browser")


def why_not() -> str | None:
    """Why these tests cannot run here; None when they can."""
    if CHROMIUM is None:
        return "no Chromium (Debian: apt-get install chromium)"
    if not (BUILT / "package.json").exists():
        return "the JupyterLab extension is not built (make labextension, which needs Node 20 or newer)"
    return None


def install(directory: Path, **settings: Any) -> None:
    """What `pip install` does by files in the environment, for a server below `directory`; and the user's settings."""
    extensions = directory / "data" / "labextensions"
    extensions.mkdir(parents=True)
    (extensions / "nls-jupyter").symlink_to(BUILT)
    lab = directory / "config" / "lab" / "user-settings"
    write(lab / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings", {"fetchNews": "false"})
    write(lab / "nls-jupyter" / "plugin.jupyterlab-settings", settings)


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Chromium without a window. Root may not use its sandbox."""
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=[*sandbox, "--disable-gpu"])
        try:
            yield chromium
        finally:
            chromium.close()


class LabPage:
    """JupyterLab in one tab."""

    def __init__(self, page: Page, url: str, token: str) -> None:
        self.page = page
        self.troubles: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.troubles.append(f"{error} {error.stack}"))
        self._url, self._token = url, token

    def open(self, notebook: str | None = None) -> None:
        """Load JupyterLab, with a notebook in front."""
        path = f"/lab/tree/{notebook}" if notebook else "/lab"
        self.page.goto(f"{self._url}{path}?token={self._token}&reset")
        self.page.locator("#jp-main-dock-panel").wait_for()
        if notebook:
            self.page.locator(".jp-Notebook").wait_for()
            # The server's sessions are known, so the page knows which kernel is the notebook's.
            expect(self.page.locator(".jp-Notebook-ExecutionIndicator, .jp-Toolbar-kernelStatus").first).to_be_visible()
            self.until_connected()

    def until_connected(self) -> None:
        """What is in front has a kernel that it can talk to."""
        self.page.wait_for_function(
            "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.connectionStatus === 'connected'"
        )

    @property
    def item(self) -> Locator:
        """The status bar's item."""
        return self.page.locator(".nls-Item-button")

    @property
    def panel(self) -> Locator:
        """The side panel."""
        return self.page.locator("#nls-jupyter-panel")

    @property
    def notification(self) -> Locator:
        """What JupyterLab tells its user now."""
        return self.page.get_by_role("alert")

    def show_panel(self) -> None:
        """As a click on its tab does."""
        self.page.locator('.jp-SideBar [data-id="nls-jupyter-panel"]').click()
        self.panel.wait_for()

    def run(self, code: str) -> None:
        """Put `code` into the last cell, run it, and return at once."""
        cell = self.page.locator(".jp-Notebook .jp-CodeCell .cm-content").last
        cell.click()
        self.page.keyboard.insert_text(code)
        self.page.keyboard.press("Shift+Enter")

    def output(self) -> Locator:
        """Of the cell that ran last."""
        return self.page.locator(".jp-Notebook .jp-OutputArea-output").last

    def theme(self, name: str) -> None:
        """By its name, such as `JupyterLab Light`."""
        self.page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", name)
        self.page.locator(f'body[data-jp-theme-name="{name}"]').wait_for(state="attached")

    def picture(self, path: Path) -> None:
        """A screenshot, once everything that moves has come to rest."""
        with contextlib.suppress(Error):
            self.page.mouse.move(700, 500)
        self.page.screenshot(path=path, animations="disabled")
