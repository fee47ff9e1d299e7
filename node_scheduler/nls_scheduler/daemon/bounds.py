"""What one user may have of a daemon that all share: more than people need, less than a runaway script takes.

They hold for administrators as well, whose scripts run away like anybody's; the numbers are theirs to change. Only of
connections and followers may they have as many as there are, so that they can always look. Where a cluster says who
asks, a pod counts as a user.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from nls_scheduler.wire.errors import Problem

TOO_MANY: Final = 429
_USERS_KEPT: Final = 1000

User = tuple[int, str]
"""User id and tenant."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one user each.

    Attributes:
        workloads: at the same time.
        submissions_at_once: so many, and then `submissions_per_s`.
        connections: `None`: half of all.
        followers: of the events.
    """

    workloads: int = 200
    submissions_at_once: int = 20
    submissions_per_s: float = 10.0
    connections: int | None = None
    followers: int = 32

    def check_workloads(self, there: int) -> None:
        """Raises Problem for one more than a user may have who has so many."""
        if there >= self.workloads:
            detail = (
                f"You have {there} workloads on this node and may have {self.workloads} (max_workloads_per_user): "
                "release some of them first, or ask an administrator for more."
            )
            raise Problem(TOO_MANY, "Too many workloads", detail)

    def check_adopted(self, there: int) -> None:
        """The same for one that is brought back: what a user had before, and as many new ones, may all be here."""
        if there >= 2 * self.workloads:
            self.check_workloads(there)

    def check_followers(self, there: int) -> None:
        """Raises Problem for one more than a user may have who has so many."""
        if there >= self.followers:
            detail = (
                f"You follow the events {there} times already, as often as one user may (max_followers_per_user): "
                "end some of these first."
            )
            raise Problem(TOO_MANY, "Too many followers", detail)


@dataclass
class Turnstile:
    """A bucket of tokens for each user: as many as may submit at once, and a new one at each turn."""

    _full_at: dict[User, float] = field(default_factory=dict)

    def submit(self, user: User, bounds: Bounds, now: float) -> None:
        """One token of `user`, at `now`. Raises Problem that says when there is one again."""
        if len(self._full_at) > _USERS_KEPT:
            self._full_at = {known: at for known, at in self._full_at.items() if at > now}
        turn_s = 1 / bounds.submissions_per_s
        full_at = max(now, self._full_at.get(user, now)) + turn_s
        wait_s = full_at - now - bounds.submissions_at_once * turn_s
        if wait_s > 1e-9:
            seconds = math.ceil(wait_s)
            detail = (
                f"You submit more than {bounds.submissions_at_once} workloads at once and "
                f"{bounds.submissions_per_s:g} a second (max_submissions_per_s): try again in {seconds} s."
            )
            raise Problem(TOO_MANY, "Too many submissions", detail, retry_after_s=seconds)
        self._full_at[user] = full_at
