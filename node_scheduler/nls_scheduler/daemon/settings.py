"""What the daemon is told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field

from nls_scheduler.core.model.policy import Policy
from nls_scheduler.daemon.bounds import Bounds
from nls_scheduler.daemon.poller import PollRates
from nls_scheduler.requests.submission import Defaults
from nls_scheduler.views.veil import Access


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
