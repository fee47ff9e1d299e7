"""JupyterLab in a browser beside a daemon with simulated GPUs; nothing of a test may outlive it."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed (pip install 'nls-jupyter[test]')")

from browsers import LabPage, browser, install, why_not
from elsewhere import Elsewhere

from lab_bench import LabBench, lab_bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from playwright.sync_api import Browser

EXPOSE = "c.LabApp.expose_app_in_browser = True\n"


class Stage:
    """One daemon, one Jupyter Server, and pages on it."""

    def __init__(self, bench: Any, chromium: Browser) -> None:
        self.bench: LabBench = bench
        self._chromium = chromium
        self._contexts: list[Any] = []

    def lab(self, notebook: str | None = None) -> LabPage:
        """JupyterLab in a new tab, with `notebook` in front."""
        context = self._chromium.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        self._contexts.append(context)
        page = LabPage(context.new_page(), self.bench.url, self.bench.token)
        page.open(notebook)
        return page

    def close(self) -> None:
        """Close all tabs."""
        for context in self._contexts:
            context.close()


@pytest.fixture(scope="session", autouse=True)
def can_run() -> None:
    """Skip where there is no browser or nothing to show in it; with CI=true that is a failure."""
    reason = why_not()
    if reason is not None and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def chromium(can_run: None) -> Iterator[Browser]:
    """Of one module: while Playwright is up, its event loop counts as running in this thread, for every other test."""
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def stage(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., AbstractContextManager[Stage]]]:
    """`with stage("2x1GiB") as s`: sizes of the simulated GPUs, settings of server, daemon and user."""

    @contextlib.contextmanager
    def built(simulate: str, settings: str = "", daemon: Sequence[str] = (), **users: Any) -> Iterator[Stage]:
        directory: Path = tmp_path_factory.mktemp("u")
        install(directory, **users)
        with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
            bench = pool.submit(stack.enter_context, lab_bench(directory, simulate, EXPOSE + settings, daemon)).result()
            scene = Stage(Elsewhere(bench, pool), chromium)
            try:
                yield scene
            finally:
                scene.close()
                pool.submit(stack.close).result()

    return built
