"""What an API server insists on, and in which words it refuses: for the one that stands in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SELECTABLE = {
    "/api/v1/pods": ("spec.nodeName", "spec.schedulerName", "status.phase"),
    "/apis/resource.k8s.io/v1/resourceslices": ("spec.nodeName", "spec.driver"),
}
"""By what else than its name an object can be selected."""


def unaccepted(query: Mapping[str, str], collection: str) -> str | None:
    """Why the server makes nothing of such a question."""
    if "continue" in query and "resourceVersion" in query:
        return "specifying resource version is not allowed when using continue"
    selectable = {"metadata.name", "metadata.namespace", *SELECTABLE.get(collection, ())}
    fields = {term.partition("=")[0] for term in query.get("fieldSelector", "").split(",") if term}
    return f"field label not supported: {min(fields - selectable)}" if fields - selectable else None


def refusal(method: str, path: str) -> str:
    """As an authorizer says it (`forbiddenMessage` of the API server)."""
    plural, verb = path.rpartition("/")[2], {"POST": "create"}.get(method, "list")
    return f'{plural} is forbidden: User "nls" cannot {verb} resource "{plural}" in API group ""'


def is_subdomain(name: str) -> bool:
    """Whether an Event, as most kinds of objects, may have this name (`IsDNS1123Subdomain`)."""
    label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    return len(name) <= 253 and re.fullmatch(rf"{label}(\.{label})*", name) is not None


def invalid_event(event: dict[str, Any], namespace: str | None) -> str | None:
    """Why an Event is none, as `ValidateEventCreate` says for `v1`."""
    metadata, about = event["metadata"], event["involvedObject"]
    if not is_subdomain(metadata["name"]):
        return f"Event {metadata['name']!r} is invalid: metadata.name: Invalid value"
    if not metadata["namespace"] == about["namespace"] == namespace:
        return f"Event {metadata['name']!r} is invalid: involvedObject.namespace: does not match event.namespace"
    return None
