"""Kinds of objects that a real API server does not know by itself, made from the fields that the driver reads."""

from __future__ import annotations

from typing import Any

TEXT, COUNT = {"type": "string"}, {"type": "integer"}


def _kind(group: str, version: str, plural: str, kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    of_version = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", **schema}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [of_version]},
    }


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


BIND_REQUEST_KIND = _kind(
    "scheduling.run.ai",
    "v1alpha2",
    "bindrequests",
    "BindRequest",
    _object(
        spec=_object(
            podName=TEXT,
            selectedNode=TEXT,
            receivedResourceType=TEXT,
            receivedGPU=_object(count=COUNT, portion=TEXT),
            selectedGPUGroups={"type": "array", "items": TEXT},
        ),
        status=_object(phase=TEXT),
    ),
)


def anything_kind(path: str) -> dict[str, Any]:
    """A kind without rules, for the collection at `/apis/GROUP/VERSION/PLURAL`."""
    _, _, group, version, plural = path.split("/")
    kind = plural.removesuffix("s").capitalize()
    return _kind(group, version, plural, kind, {"x-kubernetes-preserve-unknown-fields": True})
