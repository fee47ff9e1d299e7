"""The policies that play: ours, and beside it those of others, each a small file with its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nls_scheduler.what_if.policies.fixed_fractions import FixedFractions
from nls_scheduler.what_if.policies.idle_culler import IdleCuller
from nls_scheduler.what_if.policies.killing import Killing
from nls_scheduler.what_if.policies.memory_lost import MemoryLost
from nls_scheduler.what_if.policies.ours import Ours, OursOnDemand
from nls_scheduler.what_if.policies.replicas import Replicas
from nls_scheduler.what_if.policies.time_quantum import TimeQuantum
from nls_scheduler.what_if.policies.whole_gpu import WholeGpu

if TYPE_CHECKING:
    from nls_scheduler.core.model.policy import Policy as Rules
    from nls_scheduler.what_if.play.stage import Policy, Stage

_OTHERS: Final = (WholeGpu, IdleCuller, FixedFractions, Killing, MemoryLost, TimeQuantum, Replicas)
_OURS: Final = (Ours, OursOnDemand)
TITLES: Final = {policy.name: policy.title for policy in (*_OURS, *_OTHERS)}
"""All of them by name, as people read them."""


def policy_named(name: str, stage: Stage, rules: Rules) -> Policy:
    """For one play. Raises KeyError; `rules` are those of the daemon."""
    for ours in _OURS:
        if ours.name == name:
            return ours(stage, rules)
    return {policy.name: policy for policy in _OTHERS}[name](stage)
