"""How the API server is reached and as whom: as this pod, else by a kubeconfig.

A pod's service account is three files and two variables. Kubeconfigs are the business of the library, which is imported
for them alone: it takes longer than all else until a daemon in a pod knows its owners.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.units.clock import boottime_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
OLD_CA_VARIABLE: Final = "NLS_OLD_CLUSTER_CA"
_READ_AGAIN_S: Final = 60.0
"""The kubelet renews a token while a fifth of its life is left, ten minutes at least."""
log = logging.getLogger(__name__)


class NoClusterError(ValueError):
    """There is neither a service account nor a kubeconfig to reach an API server with."""


@dataclass(frozen=True, slots=True)
class Access:
    """The way to one API server.

    Attributes:
        url: without a slash at its end.
        context: for TLS.
        authorization: the header of that name, as it is at the moment; `None`: there is none.
        more: what else the HTTP client is told with each request.
        refused: told that the server does not accept that header: the next one is made anew where that can be.
        by_proxy: whether the environment may name a proxy on that way.
    """

    url: str
    context: ssl.SSLContext
    authorization: Callable[[], Awaitable[str | None]]
    more: Mapping[str, Any]
    refused: Callable[[], None] = lambda: None
    by_proxy: bool = True


async def find(kubeconfig: str | None, account: Path | None = None) -> Access:
    """By `kubeconfig`, else by the pod's service account, else by the usual kubeconfig. Raises NoClusterError.

    `account`: where the pod's service account is; `None`: where Kubernetes mounts it.
    """
    try:
        if kubeconfig is None and (found := of_service_account(account or SERVICE_ACCOUNT)) is not None:
            return found
        return await _of_kubeconfig(kubeconfig)
    except OSError as error:
        raise _no_cluster(error) from error


def of_service_account(folder: Path) -> Access | None:
    """As this pod; `None`: there is no service account here. Raises OSError for a CA that cannot be used."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    token, ca = _Token(folder / "token"), folder / "ca.crt"
    if not host or not port or not token.text or not ca.is_file():
        log.debug("there is no service account: trying a kubeconfig")
        return None
    authorities = _Authorities(ca)
    if _bears_with_old_ca():
        authorities.context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    named = f"[{host}]" if ":" in host else host

    async def authorization() -> str:
        authorities.look()
        return await token.header()

    return Access(f"https://{named}:{port}", authorities.context, authorization, {}, token.read, by_proxy=False)


class _Authorities:
    """Who may sign for the API server: a file that follows the cluster to others. Who was believed once stays so."""

    def __init__(self, path: Path) -> None:
        """Raises OSError for a file that cannot be used."""
        self._path, self._written = path, path.stat().st_mtime_ns
        self.context = ssl.create_default_context(cafile=path)

    def look(self) -> None:
        """Before each request; a file that cannot be used leaves those who are believed."""
        try:
            written = self._path.stat().st_mtime_ns
            if written != self._written:
                self._written = written
                self.context.load_verify_locations(self._path)
                log.info("the cluster's certificate authorities have been read again")
        except OSError as error:
            log.debug("the cluster's certificate authorities cannot be read: %s", error)


class _Token:
    """A token that is renewed in its file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.text = ""
        self.read()

    async def header(self) -> str:
        if boottime_s() - self._read_at > _READ_AGAIN_S:
            self.read()
        return f"Bearer {self.text}"

    def read(self) -> None:
        """What cannot be read, or cannot be sent in a header, leaves the token that is known."""
        self._read_at = boottime_s()
        try:
            text = self._path.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            log.debug("the service account's token cannot be read: %s", error)
            return
        if text.isprintable():
            self.text = text or self.text


async def _of_kubeconfig(path: str | None) -> Access:
    client, config = await asyncio.to_thread(_library)
    settings = client.Configuration()
    settings.disable_strict_ssl_verification = _bears_with_old_ca()
    try:
        await config.load_kube_config(config_file=path, client_configuration=settings, persist_config=False)
    except config.ConfigException as error:
        raise _no_cluster(error) from error
    context: ssl.SSLContext = client.rest.RESTClientObject(settings).ssl_context
    more = {"server_hostname": settings.tls_server_name, "proxy": settings.proxy}
    told = {name: value for name, value in more.items() if value}

    async def authorization() -> str | None:
        header: str | None = await settings.get_api_key_with_prefix("BearerToken")
        return header

    return Access(settings.host.rstrip("/"), context, authorization, told)


def _library() -> tuple[Any, Any]:
    from kubernetes.aio import client, config

    return client, config


def _bears_with_old_ca() -> bool:
    return os.environ.get(OLD_CA_VARIABLE) == "1"


def _no_cluster(error: Exception) -> NoClusterError:
    return NoClusterError(
        f"No Kubernetes API server can be reached: {error}. In a pod, give it a service account; elsewhere set "
        "KUBECONFIG."
    )
