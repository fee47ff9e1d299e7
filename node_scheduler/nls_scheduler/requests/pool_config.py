"""Pools as administrators write them, checked: `c.NlsScheduler.pools = {"a100": {"gpus": ["NVIDIA A100*"]}}`. Pure."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, cast

from nls_scheduler.core.model.pools import DEFAULT, Placement, Pool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.core.model.gpu import Gpu

_FIELDS: Final = tuple(field.name for field in fields(Pool) if field.name != "name")
_NAME_LIMIT: Final = 63


def parse_pools(written: Mapping[str, Any]) -> tuple[Pool, ...]:
    """The pools in their order. Raises ValueError with one sentence for what cannot be used."""
    return tuple(_pool(name, rules) for name, rules in written.items())


def _pool(name: object, rules: object) -> Pool:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _NAME_LIMIT or "," in name:
        raise ValueError(f"A pool's name is a text of 1 to {_NAME_LIMIT} letters without commas, not {name!r}.")
    if name == DEFAULT:
        raise ValueError(
            "The pool 'default' is the rest of the GPUs: its rules are the settings placement, oversubscribe, "
            "idle_suspend_s, max_workloads_per_gpu and freeze_cells themselves."
        )
    example = "{'gpus': ['0', '1']}"
    _require(isinstance(rules, dict), f"The pool {name!r} needs its rules as a dictionary, such as {example}.")
    return _from_rules(name, cast("dict[str, Any]", rules))


def _from_rules(name: str, rules: Mapping[str, Any]) -> Pool:
    unknown = rules.keys() - set(_FIELDS)
    if unknown:
        raise ValueError(f"The pool {name!r} has no rule {min(map(str, unknown))!r}: there are {', '.join(_FIELDS)}.")
    gpus = rules.get("gpus", ())
    fine = isinstance(gpus, list | tuple) and bool(gpus) and all(isinstance(gpu, str | int) for gpu in gpus)
    _require(fine, f"The pool {name!r} needs 'gpus': a list of UUIDs, indexes or product names with *.")
    chosen = {key: value for key, value in rules.items() if key not in ("gpus", "placement")}
    pool = Pool(name=name, gpus=tuple(map(str, gpus)), placement=_placement(name, rules), **chosen)
    check_rules(pool)
    return pool


def _placement(name: str, rules: Mapping[str, Any]) -> Placement:
    try:
        return Placement(rules.get("placement", Placement.SPREAD))
    except ValueError:
        words = " or ".join(placement.value for placement in Placement)
        raise ValueError(f"The pool {name!r} has the placement {rules['placement']!r}: write {words}.") from None


def check_rules(pool: Pool) -> None:
    """Raises ValueError with one sentence for a number that cannot be used."""
    where, cap = f"The pool {pool.name!r}", pool.max_workloads_per_gpu
    _require(isinstance(pool.enabled, bool), f"{where} has enabled = {pool.enabled!r}: write True or False.")
    _require(
        cap is None or (type(cap) is int and cap >= 1),
        f"{where} has max_workloads_per_gpu = {cap!r}: write a number from 1 on, or None for no cap.",
    )
    _require(
        pool.idle_suspend_s is None or _is_number(pool.idle_suspend_s, 1.0),
        f"{where} has idle_suspend_s = {pool.idle_suspend_s!r}: write seconds from 1 on, or None.",
    )
    _require(
        pool.freeze_cells is None or isinstance(pool.freeze_cells, bool),
        f"{where} has freeze_cells = {pool.freeze_cells!r}: write True or False, or None: as in the default pool.",
    )
    _require(
        _is_number(pool.oversubscribe, 1.0),
        f"{where} has oversubscribe = {pool.oversubscribe!r}: write a number from 1.0 on.",
    )


def _require(holds: bool, sentence: str) -> None:  # noqa: FBT001 - reads like an assertion
    if not holds:
        raise ValueError(sentence)


def _is_number(value: object, least: float) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value) and value >= least


def complaint(pools: Iterable[Pool], gpus: Iterable[Gpu]) -> str | None:
    """What does not fit this node, one sentence: a pool without a Gpu, or a Gpu that two of them name."""
    gpus = tuple(gpus)
    claimed: dict[str, str] = {}
    for pool in pools:
        named = [gpu for gpu in gpus if pool.names(gpu)]
        if gpus and not named:
            return f"The pool {pool.name!r} names no GPU of this node ({', '.join(pool.gpus)})."
        for gpu in named:
            if gpu.uuid in claimed:
                return f"{gpu.label} is named by the pools {claimed[gpu.uuid]!r} and {pool.name!r}; the first has it."
            claimed[gpu.uuid] = pool.name
    return None
