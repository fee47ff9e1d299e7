"""The third-workload story, and what people can do, seen from JupyterLab's page."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from browsers import LONG, PATIENCE_MS
from playwright.sync_api import expect

from daemon_process import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALLOCATE = "%%gpu\nimport nls_jupyter.xp as xp\nkept = xp.ones(40_000_000)\nkept.nbytes"
QUEUES = """c.NlsScheduler.queues = {
    "research": {"quota": 1},
    "vision": {"parent": "research", "quota": 0.5},
    "speech": {"parent": "research", "quota": 0.5},
}
"""
SOON_MS = 5000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture
def picture(tmp_path: Path) -> Callable[[Any, str], None]:
    """Keeps a screenshot: for the documents with NLS_PICTURES=true, else for whoever looks into a failure."""
    directory = ROOT / "docs" / "images" if os.environ.get("NLS_PICTURES") == "true" else tmp_path
    return lambda lab, name: lab.picture(directory / f"{name}.png")


@LONG
def test_a_move_is_seen_with_its_reason_and_the_next_cell_works(stage: Any, picture: Any) -> None:
    with stage("2x1GiB") as s:
        # She holds more than bob will, so that he is the one to move.
        s.bench.open("alice.ipynb").gpu("from nls_jupyter import xp\nkept = xp.ones(50_000_000)")
        s.bench.open("bob.ipynb")
        lab = s.lab("bob.ipynb")
        lab.show_panel()
        expect(lab.item).to_contain_text("no GPU")
        lab.run(ALLOCATE)
        expect(lab.item).to_contain_text("GPU 1")
        expect(lab.output()).to_have_text("320000000")
        expect(lab.panel.get_by_label("GPU 1", exact=True)).to_contain_text("borrowed")
        lab.page.wait_for_timeout(1500)  # the figures come once a second; for the picture only
        picture(lab, "1-bursting")
        training = s.bench.daemon.start_nls("run", "--name", "training", "--", "sleep", "600")
        expect(lab.item).to_contain_text("GPU 0")
        expect(lab.notification).to_contain_text("moved from GPU 1 to GPU 0: training needs GPU 1")
        expect(lab.panel.get_by_label("GPU 1", exact=True)).to_contain_text("training")
        expect(lab.panel).to_contain_text("bob.ipynb moved from GPU 1 to GPU 0")
        lab.page.wait_for_timeout(1500)
        picture(lab, "2-moved")
        lab.theme("JupyterLab Dark")
        picture(lab, "2-moved-dark")
        lab.run("%%gpu\nfloat(kept.sum())")
        expect(lab.output()).to_have_text("40000000.0")
        training.terminate()
        expect(lab.panel.get_by_label("GPU 1", exact=True)).not_to_contain_text("training")
        assert lab.troubles == []


@LONG
def test_a_notebook_is_suspended_resumed_and_given_another_request_by_clicks(stage: Any, picture: Any) -> None:
    with stage("1x1GiB") as s:
        book = s.bench.open("alice.ipynb")
        book.gpu("kept = 6 * 7")
        lab = s.lab("alice.ipynb")
        expect(lab.item).to_contain_text("GPU 0")
        lab.item.click()
        popup = lab.page.get_by_role("dialog", name="GPU of this notebook")
        picture(lab, "3-popup")
        popup.get_by_role("button", name="Suspend alice.ipynb").click()
        expect(lab.item).to_contain_text("suspended, resumes on the next cell")
        popup.get_by_role("button", name="Resume alice.ipynb").click()
        expect(lab.item).to_contain_text("GPU 0")
        expect(lab.notification).to_have_count(0)  # what one asked for is no news
        popup.get_by_role("button", name="Request… alice.ipynb").click()
        lab.page.get_by_label("Request, guaranteed on each GPU").fill("256MiB")
        picture(lab, "4-request")
        lab.page.get_by_role("button", name="Ask for it").click()
        assert book.entry(request_bytes=256 * 2**20)["limit_bytes"] == 2**30
        lab.run("%%gpu\nkept")
        expect(lab.output()).to_have_text("42")


@LONG
def test_what_did_not_come_back_is_told_by_name_and_auto_mode_is_seen(stage: Any) -> None:
    with stage("1x1GiB") as s:
        s.bench.open("alice.ipynb").gpu("handle = open('/dev/null'); kept = 1")
        lab = s.lab("alice.ipynb")
        lab.show_panel()
        lab.panel.get_by_role("button", name="Suspend alice.ipynb").click()
        lab.panel.get_by_role("button", name="Resume alice.ipynb").click()
        expect(lab.notification).to_contain_text("alice.ipynb is back on GPU 0, one name missing")
        expect(lab.panel).to_contain_text("not kept: handle")
        marker = lab.page.locator(".nls-Marker")
        expect(marker).to_contain_text("GPU 0")
        lab.page.evaluate("window.jupyterapp.commands.execute('nls-jupyter:toggle-auto')")
        expect(marker).to_contain_text("auto: GPU 0")
        lab.run("kept + 1")
        expect(lab.output()).to_have_text("2")
        lab.panel.get_by_role("button", name="Keep for 10 min alice.ipynb").click()
        expect(lab.panel).to_contain_text("kept until")
        lab.panel.get_by_role("button", name="Keep no longer alice.ipynb").click()
        expect(lab.panel).not_to_contain_text("kept until")


@LONG
def test_who_is_about_to_be_suspended_is_told_and_stays_when_they_say_so(stage: Any, picture: Any) -> None:
    patient = ["--set", "min_residency_s=600"]
    with stage("1x256MiB", daemon=patient) as s:
        alice, bob = s.bench.open("alice.ipynb"), s.bench.open("bob.ipynb")
        for book in (bob, alice):
            book.run("%gpu request 64MiB --limit 1.0")
            book.gpu("import nls_jupyter.xp as xp; large = xp.ones(15_000_000)")
            if book is bob:
                book.run("%gpu suspend")
        lab = s.lab("alice.ipynb")
        waiting = bob.start("%%gpu\n1 + 1")
        waiting.until(lambda outputs: outputs.displays)
        # On a slow machine there is another one by then: that bob waits.
        leaving = lab.notification.filter(has_text="alice.ipynb leaves GPU 0 soon: bob.ipynb needs the memory")
        expect(leaving).to_be_visible()
        picture(lab, "6-leaving")
        leaving.get_by_role("button", name="Keep for 10 min").click()
        expect(leaving).to_have_count(0)
        assert alice.entry(yields=False)["keep_until"] is not None
        bob.interrupt()
        assert waiting.fail().ename == "KeyboardInterrupt"


@LONG
def test_what_is_refused_can_be_put_right_with_the_daemons_words_beside_it(stage: Any) -> None:
    with stage("1x1GiB") as s:
        book = s.bench.open("alice.ipynb")
        book.gpu("1")
        lab = s.lab("alice.ipynb")
        lab.show_panel()
        lab.panel.get_by_role("button", name="Request… alice.ipynb").click()
        request, limit = (
            lab.page.get_by_label(text) for text in ("Request, guaranteed on each GPU", "Limit, the most")
        )
        dialog = lab.page.get_by_role("dialog")
        for sizes, why in (
            (("much", "1.0"), "The request 'much' is not a size"),
            (("512MiB", "256MiB"), "The request (512 MiB) is above the limit (256 MiB)"),
            (("99", "99"), "more than 0 and at most 1"),
            (("<b>1</b>", "1.0"), "The request '<b>1</b>' is not a size"),
        ):
            request.fill(sizes[0])
            limit.fill(sizes[1])
            lab.page.get_by_role("button", name="Ask for it").click()
            expect(dialog.get_by_role("alert")).to_contain_text(why)
            expect(request).to_have_value(sizes[0])
            expect(limit).to_have_value(sizes[1])
            assert book.entry()["request_bytes"] == 2**29
        request.fill("0.25")
        lab.page.get_by_role("button", name="Ask for it").click()
        assert book.entry(request_bytes=2**28)["limit_bytes"] == 2**30
        expect(dialog).to_have_count(0)
        expect(lab.notification).to_have_count(0)
        lab.panel.get_by_role("button", name="Request… alice.ipynb").click()
        request.fill("0.5")
        book.run("%gpu release")
        lab.page.get_by_role("button", name="Ask for it").click()
        expect(lab.notification).to_contain_text("alice.ipynb has no GPU any more")
        expect(dialog).to_have_count(0)


@LONG
def test_releasing_asks_first_and_the_notebook_lives_on(stage: Any) -> None:
    with stage("1x1GiB") as s:
        book = s.bench.open("alice.ipynb")
        book.gpu("kept = 1")
        lab = s.lab("alice.ipynb")
        lab.show_panel()
        lab.panel.get_by_role("button", name="Release… alice.ipynb").click()
        lab.page.get_by_role("button", name="Cancel").click()
        assert book.entry()["phase"] == "running"
        lab.panel.get_by_role("button", name="Release… alice.ipynb").click()
        lab.page.get_by_role("button", name="Release", exact=True).click()
        expect(lab.item).to_contain_text("no GPU")
        lab.run("%%gpu\nkept")
        expect(lab.output()).to_have_text("1")
        lab.run("%%gpu\ninput('name?')")
        expect(lab.page.locator(".jp-Stdin-input")).to_have_count(1)
        os.kill(book.entry()["pid"], signal.SIGKILL)
        expect(lab.output()).to_contain_text("GpuProcessDied")
        expect(lab.page.locator(".jp-Stdin-input")).to_have_count(0)
        lab.run("'nobody asks any more'")
        expect(lab.output()).to_contain_text("nobody asks any more")


@LONG
def test_a_cell_that_waits_is_told_and_can_be_interrupted(stage: Any, picture: Any) -> None:
    with stage("1x1GiB") as s:
        first = s.bench.open("alice.ipynb")
        first.run("%gpu request 1.0 --limit 1.0")
        first.gpu("1")
        s.bench.open("bob.ipynb")
        lab = s.lab("bob.ipynb")
        lab.show_panel()
        lab.run("%%gpu\n1")
        expect(lab.item).to_contain_text("waiting for a GPU, 1st in queue")
        expect(lab.notification).to_contain_text("GPU 0 is held by alice.ipynb", timeout=SOON_MS)
        expect(lab.panel.get_by_label("Waiting")).to_contain_text("bob.ipynb")
        expect(lab.panel.get_by_role("button", name="Interrupt")).to_have_count(1)
        picture(lab, "5-waiting")
        lab.notification.get_by_role("button", name="Interrupt").click()
        expect(lab.output()).to_contain_text(
            "the cell was interrupted before it began (waiting for a GPU: 1st in queue"
        )
        # It keeps its place in line, and there is nothing left to interrupt.
        expect(lab.panel.get_by_label("Waiting")).to_contain_text("bob.ipynb")
        expect(lab.panel.get_by_role("button", name="Interrupt")).to_have_count(0)
        lab.run("%%gpu\n2 + 2")
        first.run("%gpu release")
        expect(lab.output()).to_have_text("4")
        expect(lab.notification.filter(has_text="waiting for a GPU")).to_have_count(0)


@LONG
def test_pages_recover_from_a_killed_daemon_server_or_kernel_and_show_nothing_old_as_fresh(stage: Any) -> None:
    with stage("1x1GiB") as s:
        book = s.bench.open("alice.ipynb")
        book.gpu("1")
        lab, other = s.lab("alice.ipynb"), s.lab()
        for page in (lab, other):
            page.show_panel()
            expect(page.panel.locator(".nls-Bar")).to_have_count(1)
        s.bench.daemon.kill()
        expect(lab.item).to_contain_text("GPU: unknown", timeout=SOON_MS)
        for page in (lab, other):
            shows_nothing(page, "nls up")
        s.bench.daemon.start()
        for page in (lab, other):
            expect(page.panel.locator(".nls-Workload")).to_contain_text("alice.ipynb", timeout=SOON_MS)
        expect(lab.item).to_contain_text("GPU 0", timeout=SOON_MS)
        assert book.gpu("2").result == "2"

        book.restart()
        expect(lab.item).to_contain_text("no GPU")
        for page in (lab, other):
            expect(page.panel.locator(".nls-Workload")).to_have_count(0)
        assert book.gpu("3").result == "3"
        expect(lab.item).to_contain_text("GPU 0")

        s.bench.restart_server()
        for page in (lab, other):
            # Its kernels have ended with the server, and their GPU processes with them.
            expect(page.panel).to_contain_text("alice.ipynb asks for no GPU any more")
            expect(page.panel.locator(".nls-Bar")).to_have_count(1)
            expect(page.panel.locator(".nls-Workload")).to_have_count(0)
        assert lab.troubles == other.troubles == []


def shows_nothing(page: Any, why: str) -> None:
    expect(page.panel).to_contain_text(why)
    expect(page.panel.locator(".nls-Bar, .nls-Workload")).to_have_count(0)


@LONG
def test_queues_are_seen_where_there_are_some(
    stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, picture: Any
) -> None:
    (tmp_path / "nls_config.py").write_text(QUEUES)
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    with stage("1x1GiB") as s:
        book = s.bench.open("alice.ipynb")
        book.run("%gpu request 0.5 --queue vision")
        book.gpu("1")
        s.bench.daemon.start_nls("run", "--queue", "speech", "--name", "training", "--", "sleep", "600")
        lab = s.lab("alice.ipynb")
        lab.show_panel()
        expect(lab.panel.get_by_label("GPU 0", exact=True)).to_contain_text("queue vision")
        expect(lab.panel.get_by_label("Waiting")).to_contain_text("its fair share is 0.5")
        rows = lab.panel.locator(".nls-Queues tbody tr")
        expect(rows).to_have_count(4)
        expect(rows.filter(has_text="vision")).to_have_text(re.compile(r"vision\s*0.5\s*0.5\s*0.5\s*–"))
        expect(rows.filter(has_text="speech")).to_have_text(re.compile(r"speech\s*0\s*0.5\s*0.5\s*1"))
        assert lab.panel.evaluate("panel => panel.scrollWidth <= panel.clientWidth")
        picture(lab, "7-queues")
        lab.item.click()
        expect(lab.page.get_by_role("dialog", name="GPU of this notebook")).to_contain_text("GPU 0 · queue vision")


@LONG
def test_names_are_text_whatever_they_hold_and_two_hundred_of_them_are_shown(stage: Any) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\">" + "W" * 40
    body = json.dumps({"kind": "notebook", "name": evil, "request": "1MiB"}).encode()

    def two_hundred(route: Any) -> None:
        """The daemon's one, and 199 more of its kind."""
        server = route.connect_to_server()

        def multiply(text: str) -> None:
            message = json.loads(text)
            for name, fields in list(message.get("snapshot", {}).get("workloads", {}).items()):
                others = {f"{name}-{i}": {**fields, "id": f"{name}-{i}", "name": f"{evil}{i}"} for i in range(199)}
                message["snapshot"]["workloads"] |= others
            route.send(json.dumps(message))

        server.on_message(multiply)

    with stage("1x1GiB") as s:
        assert s.bench.daemon.request("POST", "/v1/workloads", body)[0] == 201
        lab = s.lab()
        lab.page.route_web_socket("**/nls/api/stream*", two_hundred)
        lab.open()
        lab.show_panel()
        expect(lab.panel.locator(".nls-Workload")).to_have_count(200)
        expect(lab.panel).to_contain_text(f"{evil}198")
        assert lab.panel.locator("img").count() == 0
        assert "owned" not in lab.page.title()
        assert lab.panel.evaluate("panel => panel.scrollWidth <= panel.clientWidth")
        assert lab.troubles == []
