"""Queues as administrators write them, checked: `c.NlsScheduler.queues = {"research": {"quota": 2}}`. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

from nls_scheduler.core.model.pools import DEFAULT as DEFAULT_POOL
from nls_scheduler.core.model.priorities import parse_priority
from nls_scheduler.core.model.queues import DEFAULT, EVERY_POOL, TOLERANCE, Queue, Tree
from nls_scheduler.units.sizes import format_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.policy import Policy
    from nls_scheduler.core.model.pools import Pool
    from nls_scheduler.core.model.queues import Amounts

_FIELDS: Final = ("parent", "priority", "quota", "limit", "over_quota_weight", "max_priority", "users", "groups")
_NAME_LIMIT: Final = 63
_UNLIMITED: Final = (None, -1)
NOBODY_S_ID: Final = 2**32 - 1
"""(uid_t) -1, which stands for no user in system calls: of users and groups that this machine does not have."""


def parse_queues(
    written: Mapping[str, Any], pools: Iterable[Pool], uid_of: Callable[[Any], int], gid_of: Callable[[Any], int]
) -> tuple[Queue, ...]:
    """The queues in their order. Raises ValueError with one sentence for what cannot be used.

    Args:
        written: rules by name.
        pools: the pools that amounts may name.
        uid_of: the user id of a name or number; raises ValueError.
        gid_of: the same for a group.
    """
    known = (*(pool.name for pool in pools), DEFAULT_POOL, EVERY_POOL)
    queues = tuple(_queue(name, rules, known, uid_of, gid_of) for name, rules in written.items())
    _check_parents({queue.name: queue for queue in queues})
    for queue in queues:
        _check_children(queue, [child for child in queues if child.parent == queue.name], known)
    return queues


def _queue(
    name: object, rules: object, pools: tuple[str, ...], uid_of: Callable[[Any], int], gid_of: Callable[[Any], int]
) -> Queue:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _NAME_LIMIT or name != name.strip():
        raise ValueError(f"A queue's name is a text of 1 to {_NAME_LIMIT} letters, not {name!r}.")
    if not isinstance(rules, dict):
        raise ValueError(f"The queue {name!r} needs its rules as a dictionary, such as {{'quota': 2}}.")  # noqa: TRY004 - one kind for all mistakes
    rules = cast("dict[str, Any]", rules)
    unknown = rules.keys() - set(_FIELDS)
    if unknown:
        raise ValueError(f"The queue {name!r} has no rule {min(map(str, unknown))!r}: there are {', '.join(_FIELDS)}.")
    parent = rules.get("parent")
    if parent is not None and not isinstance(parent, str):
        raise ValueError(f"The queue {name!r} has parent = {parent!r}: write the name of another queue.")
    highest = rules.get("max_priority")
    queue = Queue(
        name=name,
        parent=parent,
        priority=_priority(name, "priority", rules.get("priority", 0)),
        quota=_amounts(name, "quota", rules.get("quota", {}), pools),
        limit=_amounts(name, "limit", rules.get("limit", {}), pools),
        over_quota_weight=_amounts(name, "over_quota_weight", rules.get("over_quota_weight", {}), pools, weights=True),
        max_priority=None if highest is None else _priority(name, "max_priority", highest),
        uids=tuple(_looked_up(name, "users", rules.get("users", ()), uid_of)),
        gids=tuple(_looked_up(name, "groups", rules.get("groups", ()), gid_of)),
    )
    _check_limits(queue, pools)
    return queue


def _priority(name: str, rule: str, value: object) -> int:
    try:
        return parse_priority(value)
    except ValueError as error:
        raise ValueError(f"The queue {name!r} has {rule} = {value!r}: {error}") from None


def _amounts(name: str, rule: str, value: object, pools: tuple[str, ...], *, weights: bool = False) -> Amounts:
    """Gpus by pool. A number alone is for the pool `default`; a weight or no bound (None, -1) alone, for all pools."""
    amounts: dict[Any, Any] = (
        value if isinstance(value, dict) else {EVERY_POOL if weights or value in _UNLIMITED else DEFAULT_POOL: value}
    )
    for pool, amount in amounts.items():
        if pool not in pools:
            raise ValueError(f"The queue {name!r} has a {rule} for the pool {pool!r}: there are {', '.join(pools)}.")
        number = isinstance(amount, int | float) and not isinstance(amount, bool) and math.isfinite(amount)
        if not (amount in _UNLIMITED and not weights) and not (number and amount >= 0):
            what = "a number of 0 or more" if weights else "GPUs from 0 on, or None for no bound"
            raise ValueError(f"The queue {name!r} has {rule} = {amount!r} for the pool {pool!r}: write {what}.")
    return {pool: None if amount in _UNLIMITED else float(amount) for pool, amount in amounts.items()}


def _looked_up(name: str, rule: str, value: object, lookup: Callable[[Any], int]) -> Iterable[int]:
    if not isinstance(value, list | tuple) or not all(isinstance(who, str | int) for who in value):
        raise ValueError(f"The queue {name!r} has {rule} = {value!r}: write a list of names or numbers.")
    for who in value:
        try:
            yield lookup(who)
        except ValueError as error:
            raise ValueError(f"The queue {name!r} has {who!r} among its {rule}: {error}") from None


def _check_limits(queue: Queue, pools: tuple[str, ...]) -> None:
    for pool in pools:
        quota, limit = queue.quota_in(pool), queue.limit_in(pool)
        if limit is not None and (quota is None or quota > limit + TOLERANCE):
            raise ValueError(
                f"The queue {queue.name!r} has a quota of {format_amount(quota)} above its limit of "
                f"{format_amount(limit)} in the pool {pool!r}: lower the quota or raise the limit."
            )


def _check_parents(queues: Mapping[str, Queue]) -> None:
    for queue in queues.values():
        if queue.parent == DEFAULT:
            raise ValueError(f"The queue {queue.name!r} cannot be in the queue 'default', which is for the rest.")
        above = [queue.name]
        while (parent := queues[above[-1]].parent) is not None:
            if parent not in queues:
                raise ValueError(f"The queue {above[-1]!r} has the parent {parent!r}, which is not configured.")
            if parent in above:
                circle = " in ".join(repr(name) for name in [*above[above.index(parent) :], parent])
                raise ValueError(f"The queues go round in a circle: {circle}.")
            above.append(parent)


def _check_children(queue: Queue, children: list[Queue], pools: tuple[str, ...]) -> None:
    """What the children are promised together must be the parent's to give."""
    if not children:
        return
    if queue.uids or queue.gids:
        raise ValueError(f"The queue {queue.name!r} has queues in it: give users and groups to those.")
    for pool in pools:
        own, promised = queue.quota_in(pool), [child.quota_in(pool) for child in children]
        total = None if None in promised else sum(amount or 0.0 for amount in promised)
        if own is not None and (total is None or total > own + TOLERANCE):
            raise ValueError(
                f"The queues in {queue.name!r} have quotas of {format_amount(total)} GPUs together in the pool "
                f"{pool!r}, and {queue.name!r} itself has {format_amount(own)}: raise it, or lower theirs."
            )


def complaint(policy: Policy, gpus: Iterable[Gpu]) -> str | None:
    """What does not fit this node, one sentence: people whom it has not, quotas that are more than the pool has."""
    if not policy.queues:
        return None
    for queue in policy.queues:
        if NOBODY_S_ID in (*queue.uids, *queue.gids):
            what = "users" if NOBODY_S_ID in queue.uids else "groups"
            return f"The queue {queue.name!r} names {what} that this machine does not have: nobody is let in by them."
    count: dict[str, int] = {}
    for gpu in gpus:
        pool = policy.pool_of(gpu).name
        count[pool] = count.get(pool, 0) + 1
    for pool, there in count.items():
        top = Tree(policy.queues).children[None]
        promised = sum(quota for queue in top if (quota := queue.quota_in(pool)) is not None)
        if promised > there + TOLERANCE:
            return (
                f"The queues' quotas in the pool {pool!r} are {format_amount(promised)} GPUs together, and this node "
                f"has {there}: who comes first has them."
            )
    return None
