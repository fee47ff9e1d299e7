"""What calls to an API server need, and what roles grant, in the same terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from manifests import Manifest

VERBS = {"WATCH": "watch", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Permission:
    """One verb on one resource; `namespace` is `None` for the whole cluster."""

    group: str
    resource: str
    verb: str
    namespace: str | None = None

    def covers(self, needed: Permission) -> bool:
        """Whether it is enough for a call that needs `needed`."""
        same = (self.group, self.resource, self.verb) == (needed.group, needed.resource, needed.verb)
        return same and self.namespace in (None, needed.namespace)


def needed_for(method: str, path: str) -> Permission:
    """What a call needs: `method` is HTTP's, or WATCH for a list that is followed."""
    _, root, *parts = path.split("/")
    assert root in ("api", "apis"), path
    group, rest = ("", parts[1:]) if root == "api" else (parts[0], parts[2:])
    namespace = None
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, named = rest[0], len(rest) > 1
    return Permission(group, resource, VERBS.get(method) or ("get" if named else "list"), namespace)


def granted(manifests: Iterable[Manifest], account: tuple[str, str]) -> set[Permission]:
    """What a ServiceAccount, as namespace and name, may do by the roles that are bound to it."""
    manifests = list(manifests)
    roles = {(m["kind"], m["metadata"]["name"]): m for m in manifests if m["kind"] in ("ClusterRole", "Role")}
    permissions = set()
    for binding in manifests:
        if binding["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
            continue
        subjects = {(subject["namespace"], subject["name"]) for subject in binding["subjects"]}
        if account not in subjects:
            continue
        role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        namespace = binding["metadata"].get("namespace") if binding["kind"] == "RoleBinding" else None
        for rule in role["rules"]:
            permissions |= {
                Permission(group, resource, verb, namespace)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return permissions


def held_against(calls: Iterable[tuple[str, str]], grants: set[Permission]) -> tuple[set[Permission], set[Permission]]:
    """What the calls need and nobody granted, and what is granted and no call needs."""
    needed = {needed_for(method, path) for method, path in calls}
    refused = {need for need in needed if not any(grant.covers(need) for grant in grants)}
    idle = {grant for grant in grants if not any(grant.covers(need) for need in needed)}
    return refused, idle
