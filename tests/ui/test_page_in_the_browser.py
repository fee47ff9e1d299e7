"""The page itself: who may do what, keyboard, themes, nonsense from the server, Notebook 7."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from browsers import LONG, PATIENCE_MS
from playwright.sync_api import expect

from lab_bench import AUTHORIZER

if TYPE_CHECKING:
    from collections.abc import Iterator

UNREADABLE = "The server speaks another version of nls-jupyter: reload this page, or restart the server"
READABLE = 4.5  # WCAG 2.2, level AA
# The colours of an element's text and of the first opaque background behind it.
COLOURS = """element => {
    const context = new OffscreenCanvas(1, 1).getContext('2d');
    const parse = text => {  // in whatever notation, such as color(srgb 0.1 0.2 0.3)
        context.clearRect(0, 0, 1, 1);
        context.fillStyle = text;
        context.fillRect(0, 0, 1, 1);
        const [red, green, blue, alpha] = context.getImageData(0, 0, 1, 1).data;
        return [red, green, blue, alpha / 255];
    };
    let behind = element;
    while (behind.parentElement && (parse(getComputedStyle(behind).backgroundColor)[3]) < 1)
        behind = behind.parentElement;
    return [parse(getComputedStyle(element).color), parse(getComputedStyle(behind).backgroundColor)];
}"""
expect.set_options(timeout=PATIENCE_MS)
pytestmark = LONG


def luminance(colour: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour[:3])]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(text: list[float], behind: list[float]) -> float:
    """As WCAG defines it; a text that is not opaque is mixed with what is behind it."""
    alpha = text[3] if len(text) > 3 else 1.0
    seen = [alpha * t + (1 - alpha) * b for t, b in zip(text[:3], behind[:3], strict=True)]
    lighter, darker = sorted((luminance(seen), luminance(behind)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.fixture(scope="module")
def alice(stage: Any) -> Iterator[Any]:
    """One notebook on a GPU, for tests that change nothing about it."""
    with stage("1x1GiB") as s:
        s.bench.open("alice.ipynb").gpu("1")
        yield s


def test_everything_can_be_read_in_every_theme(alice: Any) -> None:
    lab = alice.lab("alice.ipynb")
    lab.show_panel()
    expect(lab.panel.locator(".nls-Workload")).to_have_count(1)
    lab.run("%gpu")
    expect(lab.output()).to_contain_text("This notebook is running on GPU 0")
    moving = lab.panel.locator(".nls-Segment").first.evaluate("one => getComputedStyle(one).transitionDuration")
    assert moving == "0s"  # this browser asks for reduced motion
    drawn = lab.output().locator("[role=img] div").first
    parts = (".nls-Workload .nls-Name", ".nls-Reason", ".nls-Figures dd", ".nls-Segment span", ".nls-Button")
    for theme in ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast"):
        lab.theme(theme)
        for place in (*(lab.panel.locator(part).first for part in parts), lab.item, drawn):
            text, behind = place.evaluate(COLOURS)
            assert contrast(text, behind) >= READABLE, (theme, place, text, behind)


def test_everything_can_be_reached_by_keyboard(stage: Any) -> None:
    with stage("1x1GiB") as s:
        book = s.bench.open("alice.ipynb")
        book.gpu("1")
        lab = s.lab("alice.ipynb")
        expect(lab.item).to_contain_text("GPU 0")
        lab.item.focus()
        lab.page.keyboard.press("Enter")
        suspend = lab.page.get_by_role("button", name="Suspend alice.ipynb")
        expect(suspend).to_be_focused()
        lab.page.keyboard.press("Escape")
        expect(suspend).to_have_count(0)
        expect(lab.item).to_be_focused()
        lab.page.keyboard.press("Enter")
        expect(suspend).to_be_focused()
        lab.page.keyboard.press("Enter")
        assert book.entry(phase="suspended")
        resume = lab.page.get_by_role("button", name="Resume alice.ipynb")
        expect(resume).to_be_visible()
        # Not lost with the button that was pressed.
        lab.page.wait_for_function("document.activeElement.closest('.nls-Popup') !== null")
        lab.page.keyboard.press("Escape")
        expect(resume).to_have_count(0)
        expect(lab.item).to_be_focused()


def test_who_may_only_read_sees_no_button_that_would_be_refused(stage: Any) -> None:
    with stage("1x1GiB", AUTHORIZER.format(actions=["read"]), units="decimal", toolbarMarker=False) as s:
        s.bench.open("alice.ipynb").gpu("1")
        lab = s.lab("alice.ipynb")
        lab.show_panel()
        # As this user has set it.
        expect(lab.panel.locator(".nls-Figures").first).to_contain_text("limit1.1 GB")
        expect(lab.page.locator(".nls-Marker")).to_have_count(0)
        expect(lab.panel.locator(".nls-Workload")).to_contain_text("alice.ipynb")
        expect(lab.panel.locator(".nls-Button")).to_have_count(0)


def test_who_may_not_read_has_a_page_that_works_and_says_that_nothing_is_known(stage: Any) -> None:
    with stage("1x1GiB", AUTHORIZER.format(actions=[])) as s:
        s.bench.open("alice.ipynb")
        lab = s.lab("alice.ipynb")
        expect(lab.item).to_contain_text("GPU: unknown")
        expect(lab.item).to_have_attribute("title", "Jupyter Server does not let you see the GPUs of this node.")
        lab.run("1 + 1")
        expect(lab.output()).to_have_text("2")


def test_a_server_that_has_not_loaded_the_extension_is_not_said_to_be_away(alice: Any) -> None:
    lab = alice.lab()
    lab.page.route_web_socket("**/nls/api/stream*", lambda route: route.close())
    lab.page.route("**/nls/api/status*", lambda route: route.fulfill(status=404))
    lab.open()
    lab.show_panel()
    expect(lab.panel).to_contain_text("This Jupyter Server has not loaded nls-jupyter: restart it")
    assert lab.troubles == []


def test_a_tab_that_was_hidden_does_not_say_that_the_server_was_away(alice: Any) -> None:
    lab = alice.lab()
    lab.page.clock.install()
    lab.open("alice.ipynb")
    expect(lab.item).to_contain_text("GPU 0")
    turn = "is => {Object.defineProperty(document, 'hidden', {value: is, configurable: true});"
    turn += " document.dispatchEvent(new Event('visibilitychange'))}"
    lab.page.evaluate(turn, True)
    lab.page.clock.fast_forward(61_000)
    expect(lab.item).to_have_attribute("title", re.compile("Asking for the GPUs of this node"))
    lab.page.evaluate(turn, False)
    expect(lab.item).to_contain_text("GPU 0")


def test_a_page_without_a_network_shows_nothing_old(alice: Any) -> None:
    lab = alice.lab("alice.ipynb")
    expect(lab.item).to_contain_text("GPU 0")
    lab.page.context.set_offline(True)
    expect(lab.item).to_contain_text("GPU: unknown", timeout=5000)
    lab.page.context.set_offline(False)
    expect(lab.item).to_contain_text("GPU 0")


def test_nonsense_from_the_server_is_said_and_survived(alice: Any) -> None:
    lab = alice.lab()
    routes: list[Any] = []

    def interfere(route: Any) -> None:
        server = route.connect_to_server()
        routes.append(route)
        server.on_message(lambda message: route.send("{" if len(routes) < 4 else message))

    lab.page.route_web_socket("**/nls/api/stream*", interfere)
    lab.open("alice.ipynb")
    expect(lab.item).to_have_attribute("title", re.compile(UNREADABLE))
    expect(lab.item).to_contain_text("GPU 0")
    assert len(routes) == 4
    for message in ({"version": 1, "after": 99, "time": 0}, [], {"snapshot": {"gpus": 7}}):
        routes[-1].send(json.dumps(message))
        lab.run("1 + 1")
        expect(lab.output()).to_have_text("2")
        expect(lab.item).to_contain_text("GPU 0")
    assert lab.troubles == []


def test_a_clock_far_off_changes_no_age(alice: Any) -> None:
    lab = alice.lab()
    lab.page.add_init_script("const real = Date.now; Date.now = () => real() - 400 * 24 * 3600 * 1000;")
    lab.open()
    lab.show_panel()
    # Of how the browser counts it would be 400 days.
    expect(lab.panel.locator(".nls-Entry time").first).to_contain_text(re.compile(r"\d (s|min) ago"))


def test_a_console_has_the_status_bar_while_it_is_in_front_and_its_name_leads_to_it(stage: Any) -> None:
    with stage("2x1GiB") as s:
        s.bench.open("alice.ipynb").gpu("1")
        lab = s.lab("alice.ipynb")
        expect(lab.item).to_contain_text("GPU 0")
        lab.page.evaluate(
            "void window.jupyterapp.commands.execute('console:create', {kernelPreference: {name: 'python3'}})"
        )
        prompt = lab.page.locator(".jp-CodeConsole-promptCell .cm-content")
        expect(lab.item).to_contain_text("no GPU")
        lab.until_connected()
        prompt.click()
        lab.page.keyboard.insert_text("%%gpu\n6 * 7")
        lab.page.keyboard.press("Shift+Enter")
        expect(lab.page.locator(".jp-CodeConsole .jp-OutputArea-output")).to_contain_text("42")
        expect(lab.item).to_contain_text("GPU 1")
        lab.show_panel()
        names = lab.panel.locator(".nls-Name")
        names.filter(has_text="alice").click()
        expect(lab.item).to_contain_text("GPU 0")
        names.filter(has_text="console").click()
        expect(lab.item).to_contain_text("GPU 1")
        expect(prompt).to_be_visible()
        lab.page.locator(".lm-TabBar-tab", has_text="Console 1").locator(".lm-TabBar-tabCloseIcon").click()
        names.filter(has_text="console").click()
        expect(lab.notification).to_contain_text("cannot be opened here")
        assert lab.troubles == []


@pytest.mark.skipif(find_spec("notebook") is None, reason="Notebook 7 is not installed")
def test_notebook_7_shows_the_marker_and_the_panel_too(stage: Any) -> None:
    with stage("1x1GiB", 'c.ServerApp.jpserver_extensions = {"nls_jupyter": True, "notebook": True}\n') as s:
        s.bench.open("alice.ipynb").gpu("1")
        lab = s.lab()
        lab.page.goto(f"{s.bench.url}/notebooks/alice.ipynb?token={s.bench.token}")
        marker = lab.page.locator(".nls-Marker")
        expect(marker).to_contain_text("GPU 0")
        marker.click()
        expect(lab.panel.locator(".nls-Workload")).to_contain_text("alice.ipynb")
        # Notebook itself has an error of its own at each start.
        assert not [trouble for trouble in lab.troubles if "nls-jupyter" in trouble]
