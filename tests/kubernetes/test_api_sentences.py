"""What the API's client says when the cluster's certificates are the trouble, and how it is told to bear with them."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from fake_api_server import FakeApiServer
from nls_scheduler.kubernetes_driver import access
from nls_scheduler.kubernetes_driver.access import OLD_CA_VARIABLE
from nls_scheduler.kubernetes_driver.api import _message, _sentence

if TYPE_CHECKING:
    from pathlib import Path

STRICT = bool(ssl.create_default_context().verify_flags & ssl.VERIFY_X509_STRICT)
"""Python 3.13 and later."""


@pytest.mark.parametrize(
    "what",
    ["CA cert does not include key usage extension", "Missing Authority Key Identifier"],
    ids=["usage", "key id"],
)
def test_a_ca_that_python_3_13_refuses_is_said_with_what_to_do(what: str) -> None:
    told = _sentence(ssl.SSLCertVerificationError(1, f"certificate verify failed: {what}"))
    assert "older than what Python 3.13 accepts" in told
    assert f"{OLD_CA_VARIABLE}=1" in told
    assert what in told
    assert OLD_CA_VARIABLE not in _sentence(ssl.SSLCertVerificationError(1, "certificate has expired"))


@pytest.mark.parametrize("old", [True, False])
def test_an_old_ca_is_borne_with_only_where_somebody_says_so(
    tmp_path: Path, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OLD_CA_VARIABLE, "1" if old else "")

    with FakeApiServer() as server:
        way = asyncio.run(access.find(str(server.kubeconfig(tmp_path))))
        assert bool(way.context.verify_flags & ssl.VERIFY_X509_STRICT) is (STRICT and not old)
        assert way.context.verify_mode is ssl.CERT_REQUIRED


def test_a_refusal_is_told_in_full() -> None:
    reason = "pods is forbidden: " + "x" * 400
    assert _message(f'{{"message": "{reason}"}}') == reason
