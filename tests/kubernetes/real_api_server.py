"""A real API server with the calls of `FakeApiServer`: what tests put there becomes real objects.

What a test has put there goes when it ends, so that one server serves a whole run. Roles, accounts and the kinds of
KAI's that the driver reads stay: use a cluster that may be thrown away.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

import yaml

from daemon_process import ROOT
from kinds import BIND_REQUEST_KIND, anything_kind
from kubernetes import client, config
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from control_plane import ControlPlane

BASE = ROOT / "node_scheduler" / "deploy" / "kubernetes" / "base"
DAEMON = ("nls-system", "nls-scheduler")
NAMESPACES = ("nls-system", "kai-resource-reservation")
PRIORITY_CLASSES = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}
KINDS = {"pods": "Pod", "nodes": "Node", "configmaps": "ConfigMap", "bindrequests": "BindRequest"}
KINDS["resourceslices"] = "ResourceSlice"
KINDS["resourceclaims"] = "ResourceClaim"
_OK = range(200, 300)
_EXISTS, _NOT_FOUND = 409, 404
_TOO_EARLY = 429
"""Right after its start, or for a kind that is new, the server asks to be asked again."""
_MERGE = {"Content-Type": "application/merge-patch+json"}


class RefusedError(Exception):
    """The API server's answer, with its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class RealApiServer:
    """Use as a context manager. `plane`: its processes, where they are ours; without, the cluster of `kubeconfig`."""

    def __init__(self, kubeconfig: Path, plane: ControlPlane | None = None) -> None:
        self._client = config.new_client_from_config(
            str(kubeconfig), persist_config=False, client_configuration=_settings()
        )
        self._administrators = kubeconfig
        self._plane = plane
        self._made: dict[tuple[str, str | None, str], None] = {}

    def __enter__(self) -> Self:
        self._install()
        self._told_before = {event["metadata"]["uid"] for event in self._events()}
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for collection in {key[0] for key in self._made}:
                self.clear(collection)
        finally:
            self._client.close()

    # What the fake one has as well -------------------------------------------------------------------------------

    def kubeconfig(self, directory: Path, *, administrator: bool = False) -> Path:
        """A kubeconfig by which the daemon's own account comes here: it may do what its roles let it do."""
        if administrator:
            return self._administrators
        namespace, name = DAEMON
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        token = self._call("POST", path, body=wanted)["status"]["token"]
        settings = self._client.configuration
        return written_kubeconfig(directory / "kubeconfig", settings.host, settings.ssl_ca_cert, token)

    @property
    def created(self) -> list[dict[str, Any]]:
        """Events that were told since the beginning."""
        return [event for event in self._events() if event["metadata"]["uid"] not in self._told_before]

    def put(self, collection: str, written: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object, or give it these labels, annotations, data and status; returns it as the server has it."""
        body = _sent(collection, written)
        where, name = _where(collection, body), body["metadata"]["name"]
        self._made[collection, body["metadata"].get("namespace"), name] = None
        status = body.pop("status", None)
        try:
            found = self._call("POST", where, body=body)
        except RefusedError as refused:
            if refused.status != _EXISTS:
                raise
            found = self._call("PATCH", f"{where}/{name}", body=self._changes(where, body), headers=_MERGE)
        if status:
            found = self._call("PATCH", f"{where}/{name}/status", body={"status": status}, headers=_MERGE)
        return found

    def delete(self, collection: str, written: Mapping[str, Any]) -> None:
        """Delete an object at once. One that is not there stays away."""
        metadata = written["metadata"]
        self._delete(collection, metadata.get("namespace"), metadata["name"])

    def clear(self, collection: str) -> None:
        """Delete all objects that were put into a collection."""
        for made in list(self._made):
            if made[0] == collection:
                self._delete(*made)

    def add_kind(self, path: str) -> None:
        """From now on there is that kind of object."""
        self._apply(anything_kind(path))

    def refuse(self, collection: str) -> None:
        """The daemon's role loses that resource."""
        resource = collection.rpartition("/")[2]
        role = _role()
        role["rules"] = [rule for rule in role["rules"] if resource not in rule["resources"]]
        self._replace(role)

    def permit(self, _collection: str) -> None:
        """The daemon's role is as it was."""
        self._replace(_role())

    def restart(self) -> None:
        """Away, and back with the same objects."""
        assert self._plane is not None, "only a server of our own can be restarted"
        self._plane.restart_api_server()

    # How ---------------------------------------------------------------------------------------------------------

    def _install(self) -> None:
        for manifest in (*_manifests("namespace", "service_account", "cluster_role", "role"), BIND_REQUEST_KIND):
            self._apply(manifest)
        for name in NAMESPACES:
            self._apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name, value in PRIORITY_CLASSES.items():
            head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            self._apply({**head, "value": value})

    def _apply(self, manifest: Mapping[str, Any]) -> None:
        try:
            self._call("POST", _where(COLLECTIONS[manifest["kind"]], manifest), body=manifest)
        except RefusedError as refused:
            if refused.status != _EXISTS:
                raise
        if manifest["kind"] == "CustomResourceDefinition":
            spec = manifest["spec"]
            path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
            wait_until(lambda: self._is_served(path), 30)

    def _is_served(self, path: str) -> bool:
        try:
            self._call("GET", path)
        except RefusedError as refused:
            if refused.status not in (_NOT_FOUND, _TOO_EARLY):
                raise
            return False
        return True

    def _replace(self, manifest: Mapping[str, Any]) -> None:
        where = _where(COLLECTIONS[manifest["kind"]], manifest)
        self._call("PUT", f"{where}/{manifest['metadata']['name']}", body=manifest)

    def _changes(self, where: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As a merge patch; what the object has and `body` has not goes."""
        known = self._call("GET", f"{where}/{body['metadata']['name']}")["metadata"]
        metadata = {
            field: {**dict.fromkeys(known.get(field) or {}), **(body["metadata"].get(field) or {})}
            for field in ("labels", "annotations")
        }
        changes: dict[str, Any] = {"metadata": metadata, **({"data": body["data"]} if "data" in body else {})}
        if body["kind"] == "Node":
            changes["spec"] = {"unschedulable": body.get("spec", {}).get("unschedulable")}
        return changes

    def _delete(self, collection: str, namespace: str | None, name: str) -> None:
        self._made.pop((collection, namespace, name), None)
        where = _where(collection, {"metadata": {"namespace": namespace}})
        try:
            self._call("DELETE", f"{where}/{name}", {"gracePeriodSeconds": "0"})
        except RefusedError as refused:
            if refused.status != _NOT_FOUND:
                raise

    def _events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call("GET", "/api/v1/events")["items"]
        return [event for event in found if event.get("reportingComponent") == DAEMON[1]]

    def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        head = {"Accept": "application/json", "Content-Type": "application/json", **(headers or {})}
        call = self._client.param_serialize(
            method, path, query_params=list((params or {}).items()), header_params=head, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        answer = self._client.call_api(*call, _request_timeout=30)
        text = answer.read()
        if answer.status not in _OK:
            raise RefusedError(answer.status, f"{method} {path}: {text[:500]!r}")
        found: dict[str, Any] = json.loads(text)
        return found


def written_kubeconfig(path: Path, url: str, certificate: str | None, token: str) -> Path:
    """A kubeconfig with a token, at `path`."""
    trusted = {"certificate-authority": certificate} if certificate else {}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "nls", "cluster": {"server": url, **trusted}}],
        "users": [{"name": "nls", "user": {"token": token}}],
        "contexts": [{"name": "nls", "context": {"cluster": "nls", "user": "nls"}}],
        "current-context": "nls",
    }
    path.write_text(json.dumps(kubeconfig))
    return path


def _settings() -> client.Configuration:
    settings = client.Configuration()
    settings.retries = False
    return settings


def _manifests(*names: str) -> list[dict[str, Any]]:
    found = [m for name in names for m in yaml.safe_load_all((BASE / f"{name}.yaml").read_text()) if m is not None]
    for manifest in found:
        if manifest["kind"] in ("ServiceAccount", "Role", "RoleBinding"):
            manifest["metadata"]["namespace"] = DAEMON[0]
    return found


def _role() -> dict[str, Any]:
    return next(manifest for manifest in _manifests("cluster_role") if manifest["kind"] == "ClusterRole")


def _where(collection: str, body: Mapping[str, Any]) -> str:
    """The path for one object of a collection of the whole cluster."""
    namespace = body["metadata"].get("namespace")
    if namespace is None:
        return collection
    head, _, resource = collection.rpartition("/")
    return f"{head}/namespaces/{namespace}/{resource}"


def _sent(collection: str, written: Mapping[str, Any]) -> dict[str, Any]:
    """With what a server wants to read, and without what it decides itself."""
    body: dict[str, Any] = json.loads(json.dumps(written))
    body["metadata"] = {k: v for k, v in body["metadata"].items() if k not in ("uid", "resourceVersion")}
    parts = collection.split("/")
    body["apiVersion"] = "/".join(parts[2:-1])
    body["kind"] = KINDS.get(parts[-1], parts[-1].removesuffix("s").capitalize())
    for state in body.get("status", {}).get("containerStatuses", ()):
        state |= {"image": "none", "imageID": "", "ready": True, "restartCount": 0}
    return body
