"""Who may see what: administrators, and the names of other users' workloads."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from nls_scheduler.core.model.reasons import NOBODY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.reasons import Mention
    from nls_scheduler.core.model.state import NodeState

ShowNames = Literal["auto", "all", "own", "admins"]
NAMES_KEPT: Final = 5000
_NOBODY: Final = (-1, "")
"""Whose a pod is that this daemon does not look after: none of the users who ask here."""
HIDDEN_REASON: Final = "it concerns another user"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who reads what the daemon shows.

    Attributes:
        uid: user id.
        tenant: see `WorkloadSpec.tenant`.
        sees_all: whether it reads everybody's names.
    """

    uid: int = NOBODY
    tenant: str = ""
    sees_all: bool = False

    def knows(self, whose: Mention) -> bool:
        """Whether it may read about `whose`."""
        return self.sees_all or (whose.owner != NOBODY and (whose.owner, whose.tenant) == (self.uid, self.tenant))

    def calls(self, whose: Mention) -> str:
        """What `whose` is called for it."""
        return whose.name if self.knows(whose) else f"another user's {whose.kind}"


SEES_ALL: Final = Viewer(sees_all=True)


@dataclass(frozen=True, slots=True)
class Access:
    """The administrator's choice.

    Attributes:
        admin_gid: members of this group are administrators, as root and the daemon's own user are; `None`: no group.
        show_names: who reads other users' names: `all`, `admins` only, or nobody (`own`); `auto` is not settled yet.
    """

    admin_gid: int | None = None
    show_names: ShowNames = "auto"

    def settled(self, *, shared: bool) -> Access:
        """`auto` decided: users of a `shared` daemon do not read each other's names, a user's own daemon hides none."""
        if self.show_names != "auto":
            return self
        return replace(self, show_names="admins" if shared else "all")

    def sees_all(self, *, administrator: bool) -> bool:
        """Whether somebody reads all names."""
        return self.show_names in ("auto", "all") or (self.show_names == "admins" and administrator)

    def viewer(self, uid: int, tenant: str, *, administrator: bool) -> Viewer:
        """Who reads as that user."""
        return Viewer(uid, tenant, self.sees_all(administrator=administrator))


class NameBook:
    """Whose each name is, also of workloads that ended a while ago: reasons go on mentioning them."""

    def __init__(self) -> None:
        self._names: OrderedDict[tuple[str, str], tuple[tuple[int, str], str]] = OrderedDict()

    def note(self, state: NodeState) -> None:
        """Remember the names of now."""
        for workload in state.workloads.values():
            key = (workload.id, workload.spec.name)
            self._names[key] = ((workload.spec.owner, workload.spec.tenant), workload.spec.kind.value)
            self._names.move_to_end(key)
        for owner in state.claims.owners:
            self._names[owner.id, owner.name] = (_NOBODY, "pod")
            self._names.move_to_end((owner.id, owner.name))
        while len(self._names) > NAMES_KEPT:
            self._names.popitem(last=False)

    def veil_for(self, uid: int, tenant: str = "") -> Veil:
        """What hides from `uid` (of `tenant`) everything that names others."""
        viewer = (uid, tenant)
        foreign = {name: kind for (_, name), (owner, kind) in self._names.items() if owner != viewer}
        own = {workload for (workload, _), (owner, _) in self._names.items() if owner == viewer}
        return Veil(uid, foreign, own, tenant)


class Veil:
    """Copies of what the daemon shows, without other users' names."""

    def __init__(self, uid: int, foreign: Mapping[str, str], own: set[str], tenant: str = "") -> None:
        """`foreign`: kind by name of others' workloads; `own`: ids of the viewer's."""
        self._tenant = tenant
        self._uid = uid
        self._foreign = foreign
        self._own = own
        names = "|".join(re.escape(name) for name in sorted(foreign, key=len, reverse=True))
        self._pattern = re.compile(rf"(?<!\w)(?:{names})(?!\w)") if names else None

    def text(self, text: str) -> str:
        """A sentence."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: _somebody(self._foreign[match[0]]), text)

    def status(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """`GET /v1/status`."""
        return {**status, "workloads": [self.entry(entry) for entry in status["workloads"]]}

    def entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """A workload's entry of the status, or one of the history (of a Gpu: everybody's business)."""
        if entry["kind"] == "gpu":
            return dict(entry)
        if not self._is_own(entry):
            cause = None if entry["cause"] is None else {**entry["cause"], "name": "somebody"}
            hidden = {"name": _somebody(entry["kind"]), "reason": HIDDEN_REASON, "cause": cause}
            hidden |= {"memory_answer": None} if "memory_answer" in entry else {}
            # Names of somebody's variables and cells, in an entry of the history.
            return {**entry, **hidden, **{name: [] for name in ("missing", "lost_cells") if name in entry}}
        return self.message(entry)

    def _is_own(self, entry: Mapping[str, Any]) -> bool:
        """Where many users have one user id, only workloads that are known to be the viewer's are."""
        if entry.get("owner") != self._uid:
            return False
        return not self._tenant or entry.get("workload", entry.get("id")) in self._own

    def message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Anything of the viewer's own that has a reason and a cause."""
        cause, answer = message.get("cause"), message.get("memory_answer")
        if answer is not None:
            message = {**message, "memory_answer": {**answer, "reason": self.text(answer["reason"])}}
        if cause is None:
            return {**message, "reason": self.text(message["reason"])}
        own = cause["id"] in self._own
        # The cause may have ended before this daemon began: then only the message itself tells its name.
        reason = message["reason"] if own else message["reason"].replace(cause["name"], "another user's workload")
        name = cause["name"] if own else "another user's workload"
        return {**message, "reason": self.text(reason), "cause": {**cause, "name": name}}

    def explanation(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """`GET /v1/workloads/{id}/explanation` of the viewer's own."""
        ahead = [
            entry if entry["id"] in self._own else {**entry, "name": _somebody(entry["kind"])}
            for entry in told["ahead"]
        ]
        veiled = {key: self._all_text(value) for key, value in told.items() if key not in ("name", "ahead")}
        return {**told, **veiled, "ahead": ahead}

    def _all_text(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self._all_text(item) for key, item in value.items()}
        return [self._all_text(item) for item in value] if isinstance(value, list) else value

    def supervisor_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What a supervisor is sent."""
        if "view" in message:
            return {**message, "view": self.message(message["view"])}
        return self.message(message) if "reason" in message else dict(message)


def _somebody(kind: str) -> str:
    return f"another user's {kind}"
