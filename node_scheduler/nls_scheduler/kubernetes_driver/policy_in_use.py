"""Keeps the daemon's settings to what the cluster's policy says for this node, as both change."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from nls_scheduler.kubernetes_driver import policy
from nls_scheduler.kubernetes_driver.quantities import MIB
from nls_scheduler.wire.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)


class PolicyInUse:
    """The settings that hold here. Lives in the daemon's loop."""

    def __init__(self, config_map: str | None, use: Callable[[Mapping[str, Any]], None]) -> None:
        """`config_map`: `namespace/name`, for people; `use` raises ValueError or Problem for what cannot be used."""
        self._config_map = config_map
        self._use = use
        self._values: dict[str, Any] = {}
        self.unit_bytes = MIB
        """How many bytes one `gpu-memory` is."""
        self.trouble: str | None = None
        """Why the policy as it is written now is not used."""

    def apply(self, data: Mapping[str, Any] | None, labels: Mapping[str, str]) -> None:
        """The ConfigMap's settings for this node's labels; those that cannot be used leave the old ones in place."""
        try:
            values, pool = policy.chosen(data, labels)
            unit_bytes = policy.unit_bytes(data)
            same = values == self._values and self.trouble is None
            if not same:
                self._use(values)
        except (ValueError, RecursionError, Problem) as error:
            trouble = f"The policy in {self._config_map} is refused and the old one stays: {error}"
            if trouble != self.trouble:
                log.error("%s", trouble)  # noqa: TRY400 - the sentence says it all
            self.trouble = trouble
            return
        self.unit_bytes = unit_bytes
        if same:
            return
        self._values, self.trouble = values, None
        told = ", ".join(f"{name} = {value}" for name, value in sorted(values.items()))
        log.info("this node is in the pool %s: %s", pool or "default", told or "the usual settings")
