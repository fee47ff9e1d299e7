"""A real `nls up`, for tests: on simulated Gpus, or on real ones."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from leftovers import MARK
from nls_scheduler.daemon.passports import Passports
from nls_scheduler.daemon.state_folder import KEY_NAME
from nls_scheduler.drivers.simulated_memory import open_simulation, read_simulation
from nls_scheduler.wire import locate
from openapi_contract import check_response
from waiting import wait_until

ROOT = Path(__file__).parent.parent
NLS = [sys.executable, "-W", "error", "-m", "nls_scheduler"]
END_TIMEOUT_S = 15.0


def nls_environment(**variables: str) -> dict[str, str]:
    """The environment for a process of ours: the sources of this checkout, no daemon of the machine's own.

    The mark of the test stays, by which what it left behind is found.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NLS_") or name == MARK}
    sources = os.pathsep.join([str(ROOT), str(ROOT / "node_scheduler"), str(ROOT / "server_extension")])
    return {**kept, "PYTHONPATH": sources, **variables}


def parsed(method: str, path: str, answer: bytes) -> tuple[int, Any]:
    """Status and body of an HTTP answer that keeps the contract; a JSON body as its value, another as text."""
    top, _, rest = answer.partition(b"\r\n\r\n")
    first, *lines = top.decode().split("\r\n")
    headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status = int(first.split()[1])
    check_response(method, path, status, headers, rest)
    return status, json.loads(rest) if rest and "json" in headers["Content-Type"] else rest.decode() or None


class DaemonProcess:
    """A daemon, its socket and its log; on real Gpus where `simulate` is `None`. Use as a context manager."""

    def __init__(self, directory: Path, simulate: str | None = "2x16GiB", *arguments: str) -> None:
        self.directory = directory
        self.socket = locate.checked(directory / "nls.sock")
        self.log_path = directory / "daemon.log"
        self.environment = nls_environment(NLS_SOCKET=str(self.socket))
        simulated = [] if simulate is None else ["--simulate", simulate]
        self._command = [*NLS, "--state-dir", str(directory / "state"), "up", *simulated, *arguments]
        self.process: subprocess.Popen[bytes] | None = None
        self._clients: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            with client:  # closes its pipes
                client.kill()
        self.stop()

    def start(self) -> None:
        """Returns when it accepts connections."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=self.environment, stdout=log, stderr=log)
        try:
            wait_until(lambda: locate.answers(self.socket) or self.process.poll() is not None)
        except AssertionError:
            self.kill()  # one that begins to serve later would serve for ever
            raise
        assert self.process.poll() is None, self.log

    def stop(self) -> None:
        """Ends it as an administrator does, and checks that it ended well and left nothing."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(END_TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process = None
        assert code == 0, self.log
        assert "Traceback" not in self.log
        assert "DEFECT" not in self.log, self.log
        assert not self.socket.exists()
        assert not self.socket.with_name("nls.sock.lock").exists()

    def kill(self) -> None:
        """As the OOM killer does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    @property
    def log(self) -> str:
        """What it has logged."""
        return self.log_path.read_text()

    def nls(self, *arguments: str, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """One `nls` command against it."""
        return subprocess.run(
            [*NLS, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def open_to_everybody(self) -> None:
        """As a system daemon's socket is, and as the devices of real GPUs are."""
        self.socket.chmod(0o666)
        for simulated in self.directory.rglob("simulated"):
            open_simulation(simulated, read_simulation(simulated) or ())

    def start_nls(self, *arguments: str) -> subprocess.Popen[str]:
        """One `nls` command, left running."""
        client = subprocess.Popen(
            [*NLS, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._clients.append(client)
        return client

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """One HTTP request byte by byte: status and the JSON answer."""
        head = [f"{method} {path} HTTP/1.1", "Host: nls", "Connection: close"]
        head += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if body is not None and "Content_Length" not in headers:
            head.append(f"Content-Length: {len(body)}")
        with self.connection() as connection:
            connection.sendall("\r\n".join([*head, "", ""]).encode() + (body or b""))
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        return parsed(method, path, answer)

    def connection(self) -> socket.socket:
        """A raw connection."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(10)
        try:
            connection.connect(str(self.socket))
        except OSError:
            connection.close()
            raise
        return connection

    def secret(self, workload: str, uid: int | None = None) -> str:
        """With which a user brings back a workload of that id."""
        key = self.directory / "state" / KEY_NAME
        return Passports(key).secret(workload, os.geteuid() if uid is None else uid, "")

    def status(self) -> Any:
        """`GET /v1/status`."""
        code, status = self.request("GET", "/v1/status")
        assert code == 200
        return status

    def workload(self, name: str) -> Any:
        """The status entry of that name, or None."""
        return next((w for w in self.status()["workloads"] if w["name"] == name), None)

    def wait_for(self, name: str, timeout_s: float = 45.0, **fields: object) -> Any:
        """The status entry of that name, once it has these fields. A failure says how it was last, and how it came."""
        last: Any = None

        def found() -> Any:
            nonlocal last
            last = self.workload(name)
            return last if last is not None and all(last[key] == value for key, value in fields.items()) else None

        try:
            return wait_until(found, timeout_s)
        except AssertionError:
            raise AssertionError(f"{name} had not {fields} within {timeout_s} s, but was {last}\n{self.log}") from None
