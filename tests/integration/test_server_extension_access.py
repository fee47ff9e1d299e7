"""The server extension on a real Jupyter Server beside a real daemon: who may see and do what."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_who_asks import user
from tornado.httpclient import HTTPClientError

from lab_bench import AUTHORIZER, LabBench, lab_bench
from pages import named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon_process import DaemonProcess

LONG = pytest.mark.long("servers with permissions of their own: tokens and cookies are tried here")

BASE_URL = 'c.ServerApp.base_url = "/user/some%40one/"\n'
ANY = "nothing-of-that-name"


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: the kernels' sockets are below it."""
    return tmp_path_factory.mktemp("b")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabBench]:
    with lab_bench(tmp_path_factory.mktemp("b"), settings=BASE_URL) as bench:
        yield bench


def test_a_body_of_ten_megabytes_is_refused_and_the_next_request_is_answered(bench: LabBench) -> None:
    assert bench.ask("PATCH", f"workloads/{ANY}", json.dumps({"request": "1" * 10**7})).code == 413
    assert bench.ask("GET", "status").code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "status"),
        ("GET", "stream"),
        ("PATCH", f"workloads/{ANY}"),
        ("DELETE", f"workloads/{ANY}"),
        ("POST", f"workloads/{ANY}/suspend"),
        ("POST", f"workloads/{ANY}/resume"),
        ("POST", f"gpus/{ANY}/return"),
    ],
)
def test_without_a_token_nothing_is_answered(bench: LabBench, method: str, path: str) -> None:
    refused = bench.ask(method, path, {} if method in ("PATCH", "POST") else None, headers={})
    assert refused.code in (302, 403)
    assert bench.ask(method, path, None, headers={"Authorization": "token wrong"}).code in (302, 403)


def test_without_a_token_there_is_no_stream(bench: LabBench) -> None:
    with pytest.raises(HTTPClientError) as refused:
        bench.page({})
    assert refused.value.code == 403


def test_an_order_by_cookie_needs_the_xsrf_token(bench: LabBench) -> None:
    login = bench.raw(path=f"/lab?token={bench.token}", method="GET")
    cookies = [value.split(";")[0] for value in login.headers.get_list("Set-Cookie")]
    fields = {"method": "POST", "body": "{}", "path": f"/nls/api/workloads/{ANY}/suspend"}
    refused = bench.raw(**fields, headers={"Cookie": "; ".join(cookies)})
    assert refused.code == 403
    assert b"_xsrf" in refused.body
    page = bench.raw(path="/tree", method="GET", headers={"Cookie": "; ".join(cookies)})
    cookies += [value.split(";")[0] for value in page.headers.get_list("Set-Cookie")]
    xsrf = next(value.partition("=")[2] for value in cookies if value.startswith("_xsrf="))
    allowed = bench.raw(**fields, headers={"Cookie": "; ".join(cookies), "X-XSRFToken": xsrf})
    assert allowed.code == 404


def test_a_page_of_another_site_gets_no_stream(bench: LabBench) -> None:
    login = bench.raw(path=f"/lab?token={bench.token}", method="GET")
    cookies = "; ".join(value.split(";")[0] for value in login.headers.get_list("Set-Cookie"))
    bench.page({"Cookie": cookies, "Origin": f"http://{bench.url.split('/')[2]}"})
    with pytest.raises(HTTPClientError) as refused:
        bench.page({"Cookie": cookies, "Origin": "http://elsewhere.example"})
    assert refused.value.code == 403


def test_a_workload_that_does_not_exist_is_404(bench: LabBench) -> None:
    refused = bench.ask("POST", f"workloads/{'x' * 5000}/suspend", {})
    assert (refused.code, refused.json["title"]) == (404, "No such workload")
    assert len(refused.json["message"]) < 300
    assert bench.ask("POST", f"gpus/{ANY}/return", {}).code == 404
    assert bench.ask("POST", f"workloads/{ANY}/explode", {}).code == 404


@LONG
def test_who_may_only_read_sees_everything_and_orders_nothing(directory: Path) -> None:
    with lab_bench(directory, settings=AUTHORIZER.format(actions=["read"])) as bench:
        book = bench.open()
        book.gpu("1")
        own, page = book.entry(phase="running"), bench.page()
        bench.until(page, lambda s: named(s, book.name))
        assert page.may == {"write": False, "execute": False}
        for method, path in (("PATCH", ""), ("DELETE", ""), ("POST", "/suspend"), ("POST", "/resume")):
            assert bench.ask(method, f"workloads/{own['id']}{path}", {"request": 0.1}).code == 403
        assert bench.ask("POST", "gpus/0/return", {}).code == 403
        assert bench.ask("GET", "status").code == 200
        assert book.entry()["phase"] == "running"


@LONG
def test_who_may_not_even_read_sees_nothing(directory: Path) -> None:
    with lab_bench(directory, settings=AUTHORIZER.format(actions=[])) as bench:
        assert bench.ask("GET", "status").code == 403
        with pytest.raises(HTTPClientError) as refused:
            bench.page()
        assert refused.value.code == 403


@LONG
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_others_workloads_need_the_permission_to_administer(directory: Path) -> None:
    settings = AUTHORIZER.format(actions=["read", "write"])
    with lab_bench(directory, settings=settings) as bench, open_to_all(bench.daemon), user(bench.daemon) as other:
        code, entry = other.ask("POST", "/v1/workloads", {"kind": "notebook", "name": "theirs"})
        assert code == 201
        assert bench.until(bench.page(), lambda s: named(s, "theirs"))["own"] is False
        refused = bench.ask("DELETE", f"workloads/{entry['id']}")
        assert (refused.code, refused.json["title"]) == (403, "Not an administrator")
        assert bench.daemon.workload("theirs") is not None


@contextlib.contextmanager
def open_to_all(daemon: DaemonProcess) -> Iterator[None]:
    """As a system daemon's socket is."""
    for parent in (daemon.directory, *daemon.directory.parents):
        if parent != Path("/") and parent.stat().st_uid == 0:
            parent.chmod(parent.stat().st_mode | 0o011)
    daemon.socket.chmod(0o666)
    yield
