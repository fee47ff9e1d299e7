"""A real JupyterHub with its proxy: local processes of two users of this machine, named servers, and our service."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from daemon_process import ROOT, DaemonProcess
from leftovers import MARK
from nls_scheduler.demo.jupyter import JupyterServer, Notebook
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "a-token-of-the-tests"
PASSWORD = "a-password-of-the-tests"
ADMIN = "administrator"
USERS = [user.pw_name for user in pwd.getpwall() if 0 < user.pw_uid < 1000][:2]
PATIENCE_S = 60.0
_PROXY = shutil.which(
    "configurable-http-proxy", path=f"{os.environ.get('PATH', '')}:{ROOT}/.venv/proxy/node_modules/.bin"
)

CONFIGURATION = """
import contextlib, os, pwd, random, socket, sys
from jupyterhub.spawner import SimpleLocalProcessSpawner

TESTS = {tests!r}


{free_port}


class OwnUserSpawner(SimpleLocalProcessSpawner):
    # Each server under the id of the user of that name. They may read where only root may: Python lies there.
    home_dir_template = TESTS + "/homes/{{username}}"

    @property
    def cmd(self):
        user = pwd.getpwnam(self.user.name)
        capability = "-all,+dac_read_search"
        return ["setpriv", f"--reuid={{user.pw_uid}}", f"--regid={{user.pw_gid}}", "--clear-groups",
                "--inh-caps=" + capability, "--ambient-caps=" + capability, "--bounding-set=" + capability,
                os.path.join(sys.prefix, "bin", "jupyterhub-singleuser")]

    async def start(self):
        # Not one that the system gives to a kernel of another test before the server is there.
        self.port = self.port or free_port()
        return await super().start()

    def make_preexec_fn(self, name):
        home = self.home_dir_template.format(username=name)
        os.makedirs(home, exist_ok=True)
        os.chown(home, pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid)
        return lambda: os.chdir(home)


c.JupyterHub.spawner_class = OwnUserSpawner
c.Spawner.environment = {environment!r}
c.Spawner.args = ["--ServerApp.allow_root=True", "--ServerApp.log_level=INFO"]
c.Spawner.http_timeout = c.Spawner.start_timeout = 120
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {{{admin!r}}}
c.JupyterHub.allow_named_servers = True
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
# A hub that is started anew finds its users' servers, and the proxy, as they are.
c.JupyterHub.cleanup_servers = c.JupyterHub.cleanup_proxy = False
c.JupyterHub.services = [
    {{"name": "tests", "api_token": {token!r}}},
    {{
        "name": "gpus", "url": "http://127.0.0.1:{service_port}", "oauth_no_confirm": True,
        "command": [sys.executable, "-m", "nls_jupyter_server.hub"], "environment": {environment!r},
    }},
] + {culler!r}
c.JupyterHub.load_roles = [
    {{"name": "tests", "services": ["tests"],
      "scopes": ["admin:users", "admin:servers", "access:servers", "access:services", "tokens"]}},
    {{"name": "user", "scopes": ["self", "access:services!service=gpus"]}},
    {{"name": "culler", "services": ["culler"] if {culler!r} else [],
      "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"]}},
]
"""


def _missing() -> str | None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return "only root can start servers of other users, by setpriv"
    if find_spec("jupyterhub") is None or find_spec("jupyterhub_idle_culler") is None:
        return "there is no jupyterhub with its idle culler: make .venv/.test"
    if _PROXY is None:
        return "there is no configurable-http-proxy: make .venv/.proxy"
    return None


MISSING = _missing()


def free_port() -> int:
    """One below those that the system gives to whoever does not mind: it stays free while a hub is started anew."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


class HubProcess:
    """The hub. Use as a context manager; all calls run in a loop of its own.

    Args:
        cull_after_s: servers idle for so long are ended by the idle culler; `None`: it does not run.
    """

    def __init__(self, directory: Path, daemon: DaemonProcess, cull_after_s: int | None = None) -> None:
        self._directory = directory
        self.daemon = daemon
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        environment = {
            "NLS_SOCKET": str(daemon.socket), "NLS_STANDBY_MEMORY": "0", "PYTHONPATH": daemon.environment["PYTHONPATH"],
            MARK: os.environ.get(MARK, ""),
        }  # fmt: skip
        command = [sys.executable, "-m", "jupyterhub_idle_culler", f"--timeout={cull_after_s}", "--cull-every=1"]
        configuration = CONFIGURATION.format(
            tests=str(directory), environment=environment, token=TOKEN, password=PASSWORD, admin=ADMIN, port=port,
            free_port=inspect.getsource(free_port), hub_port=free_port(), proxy_port=free_port(),
            service_port=free_port(), proxy=_PROXY,
            culler=[] if cull_after_s is None else [{"name": "culler", "command": command}],
        )  # fmt: skip
        (directory / "jupyterhub_config.py").write_text(configuration)
        (directory / "homes").mkdir(mode=0o755)
        self._runner = asyncio.Runner()
        self._notebooks: list[Notebook] = []
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        print(self.log[-20000:])  # shown of a test that has failed
        try:
            self.end_servers()
        finally:
            self.stop()
            self._end_proxy()
            self._runner.close()

    def end_servers(self) -> None:
        """Those of all users, with their notebooks."""
        self.wait(self._close_notebooks())
        for user in USERS:
            for name in (self.ask("GET", f"users/{user}", missing_ok=True) or {}).get("servers", {}):
                self.stop_server(user, name)

    async def _close_notebooks(self) -> None:
        while self._notebooks:
            self._notebooks.pop().close()

    def start(self) -> None:
        """Returns when it answers."""
        with (self._directory / "hub.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub"], cwd=self._directory, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, env={**os.environ, "CONFIGPROXY_AUTH_TOKEN": "a-token-of-the-proxy"},
            )  # fmt: skip
        self.wait(eventually(self._answers, PATIENCE_S))

    async def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        try:
            return (await self._fetch("GET", "/hub/api/")).code == 200
        except (OSError, HTTPClientError):
            return False

    def stop(self) -> None:
        """As a service manager does; servers and proxy stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _end_proxy(self) -> None:
        path = self._directory / "jupyterhub-proxy.pid"
        if path.exists():
            os.kill(int(path.read_text().split()[0]), signal.SIGTERM)

    @property
    def log(self) -> str:
        return (self._directory / "hub.log").read_text(errors="replace")

    def wait(self, work: Any) -> Any:
        return self._runner.run(work)

    async def _fetch(self, method: str, path: str, body: object = None, token: str = TOKEN, **fields: Any) -> Any:
        headers = {"Authorization": f"token {token}"}
        text = None if body is None else json.dumps(body)
        request = HTTPRequest(
            self.url + path, method=method, headers=headers, body=text, allow_nonstandard_methods=True,
            request_timeout=PATIENCE_S, follow_redirects=False, **fields,
        )  # fmt: skip
        return await AsyncHTTPClient(force_instance=True).fetch(request, raise_error=False)

    def fetch(self, method: str, path: str, body: object = None, token: str = TOKEN) -> Any:
        """Any request through the proxy."""
        return self.wait(self._fetch(method, path, body, token))

    def ask(self, method: str, path: str, body: object = None, *, missing_ok: bool = False) -> Any:
        """The hub's REST API: the JSON of its answer."""
        answer = self.fetch(method, f"/hub/api/{path}", body)
        if missing_ok and answer.code == 404:
            return None
        assert answer.code < 400, (method, path, answer.code, answer.body, self.log[-3000:])
        return json.loads(answer.body) if answer.body else None

    def token_of(self, user: str) -> str:
        """One with which that user asks."""
        if user == ADMIN:
            self.fetch("POST", f"/hub/api/users/{user}", {"admin": True})
        scopes = ["access:services!service=gpus", "read:users!user"]
        token: str = self.ask("POST", f"users/{user}/tokens", {"note": "tests", "scopes": scopes})["token"]
        return token

    def server(self, user: str, name: str = "") -> JupyterServer:
        """The user's server of that name, started."""
        self.fetch("POST", f"/hub/api/users/{user}")
        self.ask("POST", f"users/{user}/servers/{name}" if name else f"users/{user}/server")
        until = time.monotonic() + 2 * PATIENCE_S
        while not (found := self.ask("GET", f"users/{user}")["servers"].get(name, {})).get("ready"):
            assert time.monotonic() < until, (found, self.log[-5000:])
            self.wait(asyncio.sleep(0.1))
        return JupyterServer(self.url + found["url"].rstrip("/"), TOKEN)

    def stop_server(self, user: str, name: str = "") -> None:
        """As its user does on the hub's page."""
        self.ask("DELETE", f"users/{user}/servers/{name}" if name else f"users/{user}/server", missing_ok=True)
        self.wait(eventually(lambda: self._gone(user, name), PATIENCE_S))

    async def _gone(self, user: str, name: str) -> bool:
        answer = json.loads((await self._fetch("GET", f"/hub/api/users/{user}")).body)
        return name not in answer.get("servers", {})

    def open(self, server: JupyterServer, path: str) -> Notebook:
        """A notebook with its kernel."""
        notebook: Notebook = self.wait(server.open(path))
        self._notebooks.append(notebook)
        return notebook

    def run(self, notebook: Notebook, code: str) -> str | None:
        """The result of a cell."""
        result: str | None = self.wait(notebook.run(code)).result
        return result
