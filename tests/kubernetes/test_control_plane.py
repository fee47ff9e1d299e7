"""A real API server is started as envtest starts it; here with executables that stand in for it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from control_plane import ControlPlane
from daemon_process import ROOT
from real_api_server import RealApiServer, written_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Writes down how it was started, and serves the API that stands in over TLS with a certificate of its own.
STAND_IN = """#!{python}
import json, pathlib, signal, ssl, subprocess, sys, time
options = dict(a.partition("=")[::2] for a in sys.argv[1:])
pathlib.Path(__file__).with_suffix(".started").open("a").write(json.dumps(sys.argv[1:]) + "\\n")
{body}
"""
ETCD = "time.sleep(600)"
API_SERVER = """
sys.path[:0] = {paths!r}
from aiohttp import web
where = options["--cert-dir"] + "/apiserver"
make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=api"
make += " -addext subjectAltName=IP:127.0.0.1 -keyout " + where + ".key -out " + where + ".crt"
subprocess.run(make.split(), check=True, capture_output=True)
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(where + ".crt", where + ".key")
token = pathlib.Path(options["--token-auth-file"]).read_text().partition(",")[0]
objects = {{}}

async def handle(request):
    if request.headers.get("Authorization") != "Bearer " + token:
        return web.json_response({{"message": "who?"}}, status=401)
    path = request.path
    if path == "/readyz":
        return web.Response(text="ok")
    if request.method == "POST":
        body = await request.json()
        name = path + "/" + body.get("metadata", {{}}).get("name", "")
        if name in objects:
            return web.json_response({{"message": "exists"}}, status=409)
        objects[name] = body
        return web.json_response(body | {{"status": {{"token": "t"}}}}, status=201)
    if request.method == "DELETE":
        return web.json_response(objects.pop(path, {{}}))
    if request.method == "PATCH":
        body = await request.json()
        objects.setdefault(path.removesuffix("/status"), {{}}).update(body)
        return web.json_response(objects[path.removesuffix("/status")])
    return web.json_response(objects.get(path) or {{"items": []}})

app = web.Application()
app.router.add_route("*", "/{{path:.*}}", handle)
web.run_app(app, host="127.0.0.1", port=int(options["--secure-port"]), ssl_context=context, print=None)
"""


def stand_in(path: Path, body: str) -> None:
    path.write_text(STAND_IN.format(python=sys.executable, body=body))
    path.chmod(0o755)


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    stand_in(tmp_path / "etcd", ETCD)
    stand_in(tmp_path / "kube-apiserver", API_SERVER.format(paths=[str(ROOT / "tests")]))
    return tmp_path


def started(assets: Path, name: str) -> list[dict[str, str]]:
    """The options of each start."""
    lines = (assets / name).with_suffix(".started").read_text().splitlines()
    return [{o.partition("=")[0]: o.partition("=")[2] for o in json.loads(line)} for line in lines]


def test_it_starts_both_waits_until_they_serve_and_leaves_neither_behind(assets: Path) -> None:
    with ControlPlane(assets) as plane:
        etcd, server = started(assets, "etcd")[0], started(assets, "kube-apiserver")[0]
        assert server["--etcd-servers"] == etcd["--listen-client-urls"]
        assert server["--authorization-mode"] == "RBAC"
        assert plane.url.endswith(":" + server["--secure-port"])
        processes = list(plane._processes.values())
        plane.restart_api_server()
        assert len(started(assets, "kube-apiserver")) == 2
        assert len(started(assets, "etcd")) == 1
        processes += plane._processes.values()
    assert all(process.poll() is not None for process in processes)
    assert not plane.directory.exists()


def test_a_server_that_ends_at_once_is_told_with_its_log(assets: Path) -> None:
    stand_in(assets / "kube-apiserver", "sys.exit('unknown flag: --authorization-mode')")
    with pytest.raises(AssertionError, match="unknown flag"), ControlPlane(assets):
        pass


def test_a_folder_without_an_executable_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="KUBEBUILDER_ASSETS has no etcd"), ControlPlane(tmp_path):
        pass


def test_what_a_test_puts_there_is_there_and_goes_with_it(assets: Path, tmp_path: Path) -> None:
    with ControlPlane(assets) as plane:
        path = written_kubeconfig(tmp_path / "admin", plane.url, str(plane.certificate), plane.token)
        with RealApiServer(path, plane) as server:
            look: Callable[[str], dict[str, Any]] = lambda path: server._call("GET", path)  # noqa: E731
            written = {"metadata": {"name": "a", "namespace": "default", "uid": "mine"}, "status": {"phase": "Running"}}
            server.put("/api/v1/pods", written)
            found = look("/api/v1/namespaces/default/pods/a")
            assert (found["kind"], found["status"]["phase"], "uid" in found["metadata"]) == ("Pod", "Running", False)
            written["metadata"]["labels"] = {"x": "y"}
            server.put("/api/v1/pods", written)
            assert look("/api/v1/namespaces/default/pods/a")["metadata"]["labels"] == {"x": "y"}
            role = look("/apis/rbac.authorization.k8s.io/v1/clusterroles/nls-scheduler")
            assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch", "create"}
            token = json.loads(server.kubeconfig(tmp_path).read_text())["users"][0]["user"]["token"]
            assert token == "t"
            client = server
        with RealApiServer(path, plane) as server:
            assert client is not server
            assert server._call("GET", "/api/v1/namespaces/default/pods/a") == {"items": []}
