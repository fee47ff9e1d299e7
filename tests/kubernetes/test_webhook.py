"""`nls webhook` as a process: what an API server sends it, and certificates that are renewed under it."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest

from daemon_process import nls_environment
from nls_scheduler.kubernetes_driver.certificate import Certificate
from nls_scheduler.kubernetes_driver.webhook import _look
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "nls-webhook.nls-system.svc"


def make_certificate(folder: Path) -> None:
    """A new one for the service's name, its own CA."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not on the PATH")
    folder.mkdir(exist_ok=True)
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", "-addext", "keyUsage=digitalSignature"]
    command += ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)


class Webhook:
    """A running one, and the API server's side of it."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._folder = folder
        self.log = log
        command = [sys.executable, "-m", "nls_scheduler", "webhook", "--image", "nls:1", "--address", "[::]:0"]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--certificate", str(folder)], env=nls_environment(), stderr=out, stdin=subprocess.DEVNULL
            )
        wait_until(lambda: "answers at port" in log.read_text() or self.process.poll() is not None, 30)
        assert self.process.poll() is None, log.read_text()
        self._port = int(log.read_text().partition("at port ")[2].split()[0])

    def ask(self, method: str, path: str, body: bytes | None = None, *, trusting: bool = True) -> tuple[int, Any]:
        """One request by a client that trusts the certificate in the folder, and no other; a kubelet does not ask."""
        context = ssl.create_default_context(cafile=str(self._folder / "tls.crt"))
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED if trusting else ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=context, timeout=10)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    folder = tmp_path_factory.mktemp("webhook")
    make_certificate(folder / "tls")
    running = Webhook(folder / "tls", folder / "log")
    try:
        yield running
    finally:
        running.process.send_signal(signal.SIGTERM)
        code = running.process.wait(15)
    assert code == 0
    assert "Traceback" not in running.log.read_text()


def review(labels: dict[str, str]) -> bytes:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    spec = {"containers": [{"name": "main", "image": "none", "resources": limits}]}
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    written = {"metadata": {"labels": labels}, "spec": spec}
    request = {"uid": "42", "kind": kind, "operation": "CREATE", "object": written}
    asked = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(asked).encode()


def paths(answer: tuple[int, Any]) -> set[str]:
    """What the patch in an answer adds to."""
    status, said = answer
    assert (status, said["response"]["uid"], said["response"]["allowed"]) == (200, "42", True)
    patch = json.loads(base64.b64decode(said["response"].get("patch", "W10=")))
    return {operation["path"] for operation in patch}


def test_pods_get_what_their_label_says_and_a_namespace_of_owners_waits(webhook: Webhook) -> None:
    assert "/spec/containers/0/env" in paths(webhook.ask("POST", "/pods", review({"nls-jupyter/inject": "notebook"})))
    assert "/spec/initContainers" in paths(webhook.ask("POST", "/pods", review({"nls-jupyter/inject": "owner"})))
    assert paths(webhook.ask("POST", "/pods", review({}))) == set()
    assert "/spec/initContainers" in paths(webhook.ask("POST", "/owners?timeout=5s", review({})))


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/pods", b"{", 400),
        ("POST", "/pods", None, 400),
        ("GET", "/pods", None, 405),
        ("POST", "/elsewhere", b"{}", 404),
        ("GET", "/livez", None, 200),
        ("GET", "/readyz", None, 200),
    ],
)
def test_whatever_is_sent_the_answer_is_a_sentence(
    webhook: Webhook, method: str, path: str, body: bytes | None, status: int
) -> None:
    code, said = webhook.ask(method, path, body)
    assert (code, set(said)) == (status, {"status", "detail"})


def test_a_renewed_certificate_is_served_and_a_broken_one_leaves_the_old(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    certificate = Certificate(tmp_path)
    assert certificate.look() is False
    (tmp_path / "tls.crt").write_text("half of it")
    assert certificate.look() is False
    make_certificate(tmp_path)
    for name in ("tls.crt", "tls.key"):
        os.utime(tmp_path / name, ns=(1, 1))
    assert certificate.look() is True
    assert certificate.look() is False


@pytest.mark.parametrize("broken", ["tls.crt", "tls.key"])
def test_a_certificate_and_a_key_that_are_no_pair_leave_the_old_ones(tmp_path: Path, broken: str) -> None:
    make_certificate(tmp_path / "served")
    make_certificate(tmp_path / "another")
    certificate = Certificate(tmp_path / "served")
    shutil.copy(tmp_path / "another" / broken, tmp_path / "served")
    assert certificate.look() is False
    assert certificate.trouble is None
    shutil.copytree(tmp_path / "another", tmp_path / "served", dirs_exist_ok=True)
    assert certificate.look() is True
    assert certificate.trouble is None


def test_one_that_is_out_of_date_is_not_ready_until_there_is_another(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    make_certificate(folder)
    command = ["openssl", "x509", "-in", str(folder / "tls.crt"), "-signkey", str(folder / "tls.key"), "-days", "-1"]
    subprocess.run([*command, "-out", str(folder / "tls.crt")], check=True, capture_output=True)
    certificate = Certificate(folder)
    assert certificate.trouble is not None
    assert "expired" in certificate.trouble
    running = Webhook(folder, tmp_path / "log")
    try:
        assert running.ask("GET", "/livez", trusting=False)[0] == 200
        code, said = running.ask("GET", "/readyz", trusting=False)
        assert (code, said["detail"]) == (503, certificate.trouble)
        wait_until(lambda: certificate.trouble in running.log.read_text())
    finally:
        running.process.terminate()
        running.process.wait(15)
    make_certificate(folder)
    for name in ("tls.crt", "tls.key"):
        os.utime(folder / name, ns=(1, 1))
    assert certificate.look() is True
    assert certificate.trouble is None


def test_without_a_certificate_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nls_scheduler", "webhook", "--image", "nls:1", "--certificate", str(tmp_path)],
        env=nls_environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=30,
        check=False,
    )
    assert (done.returncode, "cannot be served" in done.stderr) == (3, True), done.stderr


def test_a_look_at_the_certificate_that_fails_is_told_and_another_one_follows(caplog: pytest.LogCaptureFixture) -> None:
    class Odd:
        looks = 0
        trouble = None

        def look(self) -> bool:
            self.looks += 1
            if self.looks == 1:
                raise RuntimeError("the secret is odd")
            raise asyncio.CancelledError

    async def at_once(_: float) -> None:
        """No pause."""

    odd = Odd()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(_look(cast("Certificate", odd), at_once))
    assert odd.looks == 2
    assert "RuntimeError: the secret is odd" in caplog.text
