"""A real etcd and a real kube-apiserver from a folder of executables, as envtest uses it: nothing else of a cluster."""

from __future__ import annotations

import secrets
import shutil
import socket
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

START_TIMEOUT_S = 90.0


class ControlPlane:
    """The two processes, with RBAC on. Use as a context manager; all of their files are in a directory of their own.

    Attributes:
        url: of the API server.
        certificate: the authority that its clients have to trust.
        token: of an administrator.
    """

    def __init__(self, assets: Path) -> None:
        """`assets`: the folder with `etcd` and `kube-apiserver`."""
        self._assets = assets
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        if shutil.which("openssl") is None:
            pytest.skip("openssl, which makes the API server's key for tokens, is not on the PATH")
        with ExitStack() as stack:
            self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="control-plane-")))
            stack.callback(self._end)
            self._port, self._etcd_port = _free_ports(2)
            self.url = f"https://127.0.0.1:{self._port}"
            self.certificate = self.directory / "apiserver.crt"
            self.token = secrets.token_hex(16)
            (self.directory / "tokens.csv").write_text(f'{self.token},tests,tests,"system:masters"\n')
            key = str(self.directory / "tokens.key")
            make_key = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key]
            subprocess.run(make_key, check=True, capture_output=True)
            self._start("etcd", self._etcd_options())
            self._start_api_server()
            self._kept = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def restart_api_server(self) -> None:
        """As after its update: away, and back with what etcd has kept."""
        self._stop("kube-apiserver")
        self._start_api_server()

    def log(self, name: str) -> str:
        """What a process has logged."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def _etcd_options(self) -> list[str]:
        url = f"http://127.0.0.1:{self._etcd_port}"
        data = self.directory / "etcd"
        options = [f"--data-dir={data}", f"--listen-client-urls={url}", f"--advertise-client-urls={url}"]
        # Nothing of it has to survive: every write to the disk would only be waited for.
        return [*options, "--listen-peer-urls=http://127.0.0.1:0", "--unsafe-no-fsync=true"]

    def _start_api_server(self) -> None:
        key = self.directory / "tokens.key"
        options = [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self.directory}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            # Pods are made without a controller that would have made their namespace's account.
            "--disable-admission-plugins=ServiceAccount",
            "--service-account-issuer=https://nls.test",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
        ]
        self._start("kube-apiserver", options)
        wait_until(self._ready, START_TIMEOUT_S)

    def _start(self, name: str, options: Sequence[str]) -> None:
        executable = self._assets / name
        if not executable.exists():
            raise FileNotFoundError(f"KUBEBUILDER_ASSETS has no {name}: {executable}")
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [executable, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory
            )

    def _ready(self) -> bool:
        for name, process in self._processes.items():
            assert process.poll() is None, f"{name} has ended: {self.log(name)[-3000:]}"
        request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.token}"})
        try:
            context = ssl.create_default_context(cafile=str(self.certificate))
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _stop(self, name: str) -> None:
        """At once: an API server keeps nothing itself, and would wait half a minute for those who watch."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def _end(self) -> None:
        for name in reversed(list(self._processes)):
            self._stop(name)


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, no two the same."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
