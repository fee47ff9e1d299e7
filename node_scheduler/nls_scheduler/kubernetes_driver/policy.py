"""The cluster's policy: a ConfigMap with settings, of which a node's labels choose the rules of its pool. Pure.

    data:
      policy.json: |
        {"reclaim_deadline_s": 3, "pools": {"kai.scheduler/node-pool=a100": {"max_workloads_per_gpu": 3}}}

A node is in the first pool whose label it has; the settings outside of `pools` are everybody's. `gpu_memory_unit` is
what the cluster's scheduler means by the annotation `gpu-memory`: `MiB` as KAI Scheduler and Run:ai 2.25 do, or `MB` as
Run:ai 2.22 did.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model.pools import Placement
from nls_scheduler.kubernetes_driver.written import mapping

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY: Final = "policy.json"
UNIT: Final = "gpu_memory_unit"
_USUAL_UNIT: Final = "MiB"
_UNITS: Final[Mapping[str, int]] = {"MiB": 2**20, "MB": 10**6}
DEFAULTS: Final[Mapping[str, Any]] = {
    # A container starts a few seconds after its GPU was promised: by then it must be free.
    "reclaim_deadline_s": 3.0,
    "stop_grace_s": 0.5,
    "max_workloads_per_gpu": None,
}
_RULES: Final = ("enabled", "max_workloads_per_gpu", "placement", "idle_suspend_s", "freeze_cells")
_LIMIT_BYTES: Final = 256 * 1024


def config_data(written: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a ConfigMap holds."""
    return mapping(written, "data")


def chosen(data: Mapping[str, Any] | None, labels: Mapping[str, str]) -> tuple[dict[str, Any], str | None]:
    """The settings for a node with these labels, and the pool that it is in. Raises ValueError with one sentence.

    `data`: the ConfigMap's; `None`: there is none, which changes nothing.
    """
    values = _read(data)
    _bytes_of(values.pop(UNIT, _USUAL_UNIT))
    if "oversubscribe" in values:
        raise ValueError(
            "oversubscribe is 1.0 on Kubernetes: suspending a notebook frees nothing that KAI has counted."
        )
    pools = values.pop("pools", {})
    if not isinstance(pools, dict):
        raise ValueError("pools must be an object: rules by label, such as kai.scheduler/node-pool=a100.")  # noqa: TRY004 - a bad value of the file, as the others
    for pool, rules in pools.items():
        _check(pool, rules)
    pool = next((name for name in pools if _has(labels, name)), None)
    return {**values, **(_settings(pools[pool]) if pool is not None else {})}, pool


def unit_bytes(data: Mapping[str, Any] | None) -> int:
    """How many bytes one `gpu-memory` is. Raises ValueError with one sentence."""
    return _bytes_of(_read(data).get(UNIT, _USUAL_UNIT))


def _bytes_of(unit: object) -> int:
    if not isinstance(unit, str) or unit not in _UNITS:
        raise ValueError(f"{UNIT} is {' or '.join(_UNITS)}: what the cluster's scheduler means by gpu-memory.")
    return _UNITS[unit]


def _read(data: Mapping[str, Any] | None) -> dict[str, Any]:
    text = (data or {}).get(KEY)
    if text is None:
        return {}
    if not isinstance(text, str) or len(text) > _LIMIT_BYTES:
        raise ValueError(f"{KEY} must be a text of at most {_LIMIT_BYTES} bytes.")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{KEY} is not JSON: {error}.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{KEY} must be an object: settings by name.")  # noqa: TRY004 - a bad value of the file, as the others
    return values


def _check(pool: str, rules: object) -> None:
    key, equals, _ = pool.partition("=")
    if not key or not equals:
        raise ValueError(f"The pool {pool!r} is no label: write key=value.")
    if not isinstance(rules, dict):
        raise ValueError(f"The pool {pool!r} needs an object with its rules.")  # noqa: TRY004 - a bad value of the file, as the others
    unknown = rules.keys() - set(_RULES)
    if unknown:
        raise ValueError(f"The pool {pool!r} has no rule {min(unknown)!r}: there are {', '.join(_RULES)}.")
    if not isinstance(rules.get("enabled", True), bool):
        raise ValueError(f"The pool {pool!r} has an 'enabled' that is neither true nor false.")  # noqa: TRY004 - a bad value of the file, as the others


def _has(labels: Mapping[str, str], pool: str) -> bool:
    key, _, value = pool.partition("=")
    return labels.get(key) == value


def _settings(rules: Mapping[str, Any]) -> dict[str, Any]:
    """A pool that is off reroutes nobody: everybody runs at home."""
    settings = {name: value for name, value in rules.items() if name != "enabled"}
    return settings if rules.get("enabled", True) else {**settings, "placement": Placement.BINPACK.value}
