"""How the API server is reached: as a pod, or by a kubeconfig."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fake_api_server import FakeApiServer
from nls_scheduler.kubernetes_driver import access
from nls_scheduler.kubernetes_driver.api import KubernetesApi
from nls_scheduler.kubernetes_driver.reflector import ApiError
from objects import PODS, pod

if TYPE_CHECKING:
    from pathlib import Path

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class SelfMadeError(Exception):
    """Nobody foresaw it."""


def test_a_pod_needs_no_kubeconfig_and_follows_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        api = KubernetesApi(await access.find(None, tmp_path))
        try:
            listed, _ = await api.list(PODS, {})
            assert [each["metadata"]["name"] for each in listed] == ["there"]
            (tmp_path / "token").write_text("renewed")
            monkeypatch.setattr(access, "_READ_AGAIN_S", -1.0)
            await api.list(PODS, {})
            for unusable in (b"", b"\xff\xfe is no text", b"of two\nlines", b"of nothing\x00"):
                (tmp_path / "token").write_bytes(unusable)
                await api.list(PODS, {})
        finally:
            await api.close()

    with FakeApiServer() as server:
        server.put(PODS, pod("there"))
        for name, value in server.service_account(tmp_path).items():
            monkeypatch.setenv(name, value)
        asyncio.run(story())
        assert server.authorizations == {"Bearer secret", "Bearer renewed"}


def test_a_pod_reaches_its_own_cluster_by_no_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that are set for all pods except addresses by networks, which Go reads and Python does not."""

    async def story() -> int:
        api = KubernetesApi(await access.find(None, tmp_path))
        try:
            return len((await api.list(PODS, {}))[0])
        finally:
            await api.close()

    with FakeApiServer() as server:
        server.put(PODS, pod("there"))
        variables = {**server.service_account(tmp_path), "https_proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.0/8"}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert asyncio.run(story()) == 1


def test_a_token_that_is_refused_is_read_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        api = KubernetesApi(await access.find(None, tmp_path))
        try:
            server.faults.answers = [(401, {})]
            (tmp_path / "token").write_text("renewed")
            of = {"name": "there", "namespace": "default"}
            event = {"kind": "Event", "metadata": of, "involvedObject": of}
            await api.create("/api/v1/namespaces/default/events", event)
            assert server.authorizations == {"Bearer secret", "Bearer renewed"}
            asked = server.requests.total()
            server.faults.answers = [(401, {})]
            with pytest.raises(ApiError) as raised:
                await api.list(PODS, {})
            assert (raised.value.status, raised.value.retriable) == (401, True)
            assert server.requests.total() == asked + 1, "the same token again is of no use"
        finally:
            await api.close()

    with FakeApiServer() as server:
        for name, value in server.service_account(tmp_path).items():
            monkeypatch.setenv(name, value)
        asyncio.run(story())
        assert len(server.created) == 1


def test_a_pod_follows_its_cluster_to_another_certificate_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(to: dict[str, str]) -> None:
        for name, value in to.items():
            monkeypatch.setenv(name, value)

    async def story(server: FakeApiServer) -> None:
        way = access.of_service_account(tmp_path)
        assert way is not None
        moved(await asyncio.to_thread(server.service_account, tmp_path))
        there = access.of_service_account(tmp_path)
        assert there is not None
        api = KubernetesApi(replace(way, url=there.url))
        try:
            listed, _ = await api.list(PODS, {})
            assert [each["metadata"]["name"] for each in listed] == ["there"]
            (tmp_path / "ca.crt").write_text("half of one")
            await api.list(PODS, {})
        finally:
            await api.close()

    with FakeApiServer() as server:
        server.put(PODS, pod("there"))
        moved(server.service_account(tmp_path))
        asyncio.run(story(server))


@pytest.mark.parametrize("header", ["of two\nlines", SelfMadeError("the program that gives the token has gone")])
def test_whatever_stands_in_the_way_of_a_request_is_an_api_error(header: str | Exception) -> None:
    async def authorization() -> str:
        if isinstance(header, Exception):
            raise header
        return header

    async def story() -> None:
        api = KubernetesApi(access.Access(server.url, ssl.create_default_context(), authorization, {}))
        try:
            with pytest.raises(ApiError):
                await api.list(PODS, {})
            with pytest.raises(ApiError):
                await anext(aiter(api.watch(PODS, {}, 1.0)))
        finally:
            await api.close()

    with FakeApiServer() as server:
        asyncio.run(story())


@pytest.mark.parametrize("missing", [HOST, PORT, "token", "ca.crt"])
def test_half_a_service_account_is_none(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ((HOST, "fd00::1"), (PORT, "443")):
        monkeypatch.setenv(name, value)
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("secret")
    monkeypatch.delenv(missing, raising=False)
    (tmp_path / missing).unlink(missing_ok=True)
    assert access.of_service_account(tmp_path) is None


def test_a_host_with_colons_is_bracketed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeApiServer() as server:
        variables = server.service_account(tmp_path)
    monkeypatch.setenv(HOST, "fd00::1")
    monkeypatch.setenv(PORT, variables[PORT])
    way = access.of_service_account(tmp_path)
    assert way is not None
    assert way.url == f"https://[fd00::1]:{variables[PORT]}"


def test_where_there_is_neither_it_is_said_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(access.NoClusterError, match="set KUBECONFIG"):
        asyncio.run(access.find(str(tmp_path / "none")))


def test_a_pod_never_imports_the_library() -> None:
    code = "import sys; import nls_scheduler.kubernetes_driver.api; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
