"""Who may see what: administrators, and the names of other users' workloads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from nls_scheduler.core.model.reasons import NOBODY

if TYPE_CHECKING:
    from nls_scheduler.core.model.reasons import Mention

ShowNames = Literal["auto", "all", "own", "admins"]
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

    def owns(self, whose: Mention) -> bool:
        """Whether `whose` is its own: in two pods everybody may have the same user id."""
        return whose.owner != NOBODY and (whose.owner, whose.tenant) == (self.uid, self.tenant)

    def knows(self, whose: Mention) -> bool:
        """Whether it may read about `whose`."""
        return self.sees_all or self.owns(whose)

    def calls(self, whose: Mention) -> str:
        """What `whose` is called for it."""
        return whose.name if self.knows(whose) else f"another user's {whose.kind}"

    def calls_gang(self, gang: str, whose: Mention) -> str:
        """What the gang of `whose` is called for it: its owner named it, as the workload."""
        return gang if self.knows(whose) else "another user's gang"

    def calls_cause(self, cause: Mention, whose: Mention) -> str:
        """What `cause` is called for it where that made something necessary for `whose`."""
        return self.calls(cause) if self.knows(whose) else "somebody"


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
