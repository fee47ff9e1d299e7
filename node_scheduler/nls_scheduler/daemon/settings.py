"""What the daemon is told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nls_scheduler.core.model.policy import Policy
from nls_scheduler.daemon.bounds import Bounds
from nls_scheduler.daemon.poller import PollRates
from nls_scheduler.requests.submission import Defaults
from nls_scheduler.views.veil import Access

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """What the daemon is told at its start, checked by `config`."""

    policy: Policy = field(default_factory=Policy)
    defaults: Defaults = field(default_factory=Defaults)
    rates: PollRates = field(default_factory=PollRates)
    access: Access = field(default_factory=Access)
    max_connections: int = 800
    bounds: Bounds = field(default_factory=Bounds)
    client_timeout_s: float = 30.0
    observe_address: str = ""

    @property
    def read_at_start(self) -> Mapping[str, object]:
        """What does not change while the daemon runs, by the names of the settings."""
        return {
            "client_timeout_s": self.client_timeout_s,
            "max_connections": self.max_connections,
            "max_connections_per_user": self.bounds.connections,
            "observe_address": self.observe_address,
        }
