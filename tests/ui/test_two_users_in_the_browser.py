"""Two users on one machine, each with a JupyterLab of their own: each sees and controls their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from browsers import LONG, PATIENCE_MS, LabPage, install
from elsewhere import Elsewhere
from playwright.sync_api import expect

from hub import CANNOT, hub

if TYPE_CHECKING:
    from playwright.sync_api import Browser

EXPOSE = "c.LabApp.expose_app_in_browser = True\n"
expect.set_options(timeout=PATIENCE_MS)
pytestmark = LONG


@pytest.mark.skipif(CANNOT is not None, reason=CANNOT or "")
def test_each_sees_and_controls_their_own(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        both = hub(tmp_path_factory.mktemp, "1x1GiB", install, EXPOSE)
        benches: Any = pool.submit(stack.enter_context, both).result()
        try:
            anna, bert = (Elsewhere(bench, pool) for bench in benches)
            hers, his = anna.open("diagnosis.ipynb"), bert.open("bert.ipynb")
            hers.gpu("1")
            his.gpu("1")
            with chromium.new_context() as first, chromium.new_context() as second:
                her_page = LabPage(first.new_page(), anna.url, anna.token)
                his_page = LabPage(second.new_page(), bert.url, bert.token)
                for page, notebook in ((her_page, "diagnosis.ipynb"), (his_page, "bert.ipynb")):
                    page.open(notebook)
                    page.show_panel()
                    expect(page.item).to_contain_text("GPU 0")
                    others = page.panel.locator(".nls-Workload[data-own=false]")
                    expect(others).to_contain_text("another user's notebook")
                    expect(others.locator(".nls-Button")).to_have_count(0)
                expect(his_page.panel).not_to_contain_text("diagnosis")
                expect(her_page.panel).not_to_contain_text("bert")
                his_page.panel.get_by_role("button", name="Suspend bert.ipynb").click()
                expect(his_page.item).to_contain_text("suspended, resumes on the next cell")
                expect(her_page.panel).to_contain_text("suspended, resumes on the next cell")
                expect(her_page.item).to_contain_text("GPU 0")
            assert hers.gpu("1 + 1").result == "2"
        finally:
            pool.submit(stack.close).result()
