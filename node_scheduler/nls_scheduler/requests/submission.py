"""What people ask for, turned into a WorkloadSpec, or refused with one sentence. Pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model.pools import DEFAULT
from nls_scheduler.core.model.priorities import PRIORITY_LIMIT as PRIORITY_LIMIT
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.requests.queue_access import Who, check_priority, priority_in, queue_in
from nls_scheduler.units.sizes import format_bytes, parse_size, to_bytes
from nls_scheduler.wire.errors import WITHOUT_GPU, Problem, impossible, malformed
from nls_scheduler.wire.protocol import WORKLOAD_NAME_LIMIT, clean_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.policy import Policy
    from nls_scheduler.core.model.workload import Workload

_SHOWN: Final = 100
KEEP_LIMIT_S: Final = 30 * 24 * 3600
_LIKE_AN_ID: Final = re.compile("[0-9a-f]{12}")
GANG_SIZE_LIMIT: Final = 512
GPUS_LIMIT: Final = 256
"""No node has more, slices included: who asks for up to more asks for all that there are."""
_SPEC_FIELDS: Final = ("name", "request", "limit", "gpus", "gpus_max", "priority", "requeue", "pools", "queue")
_PATCH_FIELDS: Final = (*_SPEC_FIELDS, "keep_s")
_SUBMIT_FIELDS: Final = ("kind", *_SPEC_FIELDS, "gang", "gang_size")


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a notebook gets that does not say: sizes as people write them."""

    request: str = "0.5"
    limit: str = "1.0"


def submission(
    body: Mapping[str, Any],
    owner: int,
    gpus: Collection[Gpu],
    defaults: Defaults,
    taken_names: Collection[str],
    policy: Policy,
    who: Who | None = None,
) -> WorkloadSpec:
    """The spec of a new workload. Raises Problem; `gpus` is not empty (see `no_gpu`). `who`: the owner, in full."""
    who = who or Who(owner)
    _refuse_unknown(body, _SUBMIT_FIELDS)
    kind = _kind(body)
    pools = _pools(body, (DEFAULT,), policy)
    gpus = _in_pools(pools, gpus, policy)
    largest = _largest(gpus)
    request_bytes, limit_bytes = _sizes(body, command=kind is Kind.COMMAND, largest=largest, defaults=defaults)
    spec = _spec(
        WorkloadSpec(
            name=_name(body) or _free_name(kind, taken_names),
            kind=kind,
            owner=owner,
            request_bytes=request_bytes,
            limit_bytes=max(limit_bytes, request_bytes),
            gpu_count=(fewest := _whole(body, "gpus", 1, low=1, high=10**6)),
            gpu_count_max=_most_gpus(body, fewest, None),
            gang=(gang := _gang(body)),
            gang_size=_gang_size(body, gang),
            priority=priority_in(body, 0),
            requeue=_flag(body, "requeue", default=False),
            pools=pools,
            queue=queue_in(body, None, policy, who),
        ),
        limit_bytes,
    )
    check_priority(spec, policy, who)
    _refuse_too_large(spec, gpus, policy)
    return spec


def respecification(
    body: Mapping[str, Any], spec: WorkloadSpec, gpus: Collection[Gpu], policy: Policy, who: Who | None = None
) -> WorkloadSpec:
    """`spec` with the fields of `body` changed by `who`. A guaranteed workload stays so unless a limit is given."""
    who = who or Who(spec.owner)
    _refuse_unknown(body, _PATCH_FIELDS)
    pools = _pools(body, spec.pools, policy)
    gpus = _in_pools(pools, gpus, policy)
    largest = _largest(gpus)
    request_bytes = _size(body, "request", largest, f"{spec.request_bytes}B")
    limit_bytes = _size(body, "limit", largest, f"{spec.limit_bytes if spec.burstable else request_bytes}B")
    changed = _spec(
        replace(
            spec,
            name=_name(body) or spec.name,
            request_bytes=request_bytes,
            limit_bytes=max(limit_bytes, request_bytes),
            gpu_count=(fewest := _whole(body, "gpus", spec.gpu_count, low=1, high=10**6)),
            gpu_count_max=_most_gpus(body, fewest, spec.gpu_count_max if "gpus" not in body else None),
            priority=priority_in(body, spec.priority),
            requeue=_flag(body, "requeue", default=spec.requeue),
            pools=pools,
            queue=queue_in(body, spec.queue, policy, who),
        ),
        limit_bytes,
    )
    _refuse_too_large(changed, gpus, policy)
    if (changed.priority, changed.queue) != (spec.priority, spec.queue):
        check_priority(changed, policy, who)
    return changed


def check_context(spec: WorkloadSpec, context_bytes: int) -> None:
    """Raises Problem where a CUDA context alone, which takes about `context_bytes` here, is above the limit."""
    if spec.limit_bytes < context_bytes:
        raise impossible(
            f"A CUDA context alone takes about {format_bytes(context_bytes)} here, above the limit of "
            f"{format_bytes(spec.limit_bytes)}: whatever starts would be stopped. Ask for more than that."
        )


def check_saved(workload: Workload, changed: WorkloadSpec) -> None:
    """Raises Problem where what `workload` has saved could not come back within the limit that it would have."""
    saved_bytes = 0 if workload.unsaved else workload.saved_bytes or 0
    if changed.limit_bytes < min(saved_bytes, workload.spec.limit_bytes):
        raise impossible(
            f"Its saved state of {format_bytes(saved_bytes)} would not come back within a limit of "
            f"{format_bytes(changed.limit_bytes)}: delete variables of the GPU process first, or ask for more."
        )


def check_count(workload: Workload, changed: WorkloadSpec) -> None:
    """Raises Problem where `workload` runs on another number of Gpus than it would ask for: a process keeps its own."""
    count = len(workload.current)
    on = "1 GPU" if count == 1 else f"{count} GPUs"
    most = changed.gpu_count if changed.gpu_count_max is None else changed.gpu_count_max
    if workload.present and not changed.resizable and not changed.gpu_count <= count <= most:
        raise impossible(f"It runs on {on}, and a process keeps those that it was started with: end it, and ask anew.")


def check_place(workload: Workload, changed: WorkloadSpec) -> None:
    """Raises Problem where `workload` would have to stay on a Gpu that others may be promised: it is not its home."""
    could_leave, can_leave = (spec.movable or spec.resizable for spec in (workload.spec, changed))
    if workload.present and could_leave and not can_leave and workload.current != workload.home:
        raise impossible(
            "It is on a GPU that is not its home, and one that does not start again would have to stay there: "
            "ask again when it is at home."
        )


def keep_s(body: Mapping[str, Any], spec: WorkloadSpec) -> float:
    """For how long a notebook's user holds it from now on; 0: no longer. Raises Problem."""
    value = body["keep_s"]
    if value is None:
        value = 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= KEEP_LIMIT_S:
        raise malformed(f"The field 'keep_s' is a number of seconds from 0 to {KEEP_LIMIT_S}, or null.")
    if value and spec.kind is not Kind.NOTEBOOK:
        raise impossible("A command is never suspended for being idle: only a notebook can be kept.")
    return float(value)


def no_gpu(why: str | None, known: Iterable[Gpu] = (), *, simulated: bool = False) -> Problem:
    """The refusal on a node without any usable Gpu: `why` by the driver, `known` are those out of service."""
    indexes = sorted(gpu.index for gpu in known)
    if why is None and indexes:
        which = ", ".join(map(str, indexes))
        because = f"Every GPU of this node is out of service: {which} (nls status says why)."
        advice = f"An administrator puts one that is well again back: nls gpu return {indexes[0]}"
    else:
        because = why or "No Gpu of this node can be used at the moment."
        advice = "" if simulated else WITHOUT_GPU
    return Problem(503, "No GPU on this node", f"{because} {advice}".rstrip(), "node")


def _refuse_unknown(body: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = body.keys() - set(known)
    if unknown:
        raise malformed(f"There is no field {clean_text(min(unknown))[:_SHOWN]!r}: use {', '.join(known)}.")


def _kind(body: Mapping[str, Any]) -> Kind:
    kinds = [kind.value for kind in Kind]
    if body.get("kind") not in kinds:
        raise malformed(f"The field 'kind' is needed, one of {', '.join(kinds)}.")
    return Kind(body["kind"])


def _name(body: Mapping[str, Any]) -> str | None:
    name = body.get("name")
    if name is None:
        return None
    if not isinstance(name, str) or len(name) > WORKLOAD_NAME_LIMIT or not (cleaned := clean_text(name)):
        raise malformed(f"A name is a text of 1 to {WORKLOAD_NAME_LIMIT} characters.")
    if _LIKE_AN_ID.fullmatch(cleaned):
        raise malformed(f"The name {cleaned} could be taken for somebody's id: choose another one.")
    return cleaned


def _free_name(kind: Kind, taken_names: Collection[str]) -> str:
    number = 1
    while f"{kind}-{number}" in taken_names:
        number += 1
    return f"{kind}-{number}"


def _size(body: Mapping[str, Any], field: str, largest: Gpu, default: str) -> int:
    given = body.get(field, default)
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise malformed(f"The {field} is not a size: write a fraction of a GPU such as 0.5, or bytes such as 8GiB.")
    try:
        size_bytes = to_bytes(parse_size(str(given)[:_SHOWN]), largest.memory_total_bytes)
    except (ValueError, OverflowError) as error:
        raise malformed(f"The {field} {clean_text(str(error))}") from error
    if size_bytes < 1:
        raise malformed(f"The {field} {str(given)!r} is less than one byte: ask for more.")
    return size_bytes


def _sizes(body: Mapping[str, Any], *, command: bool, largest: Gpu, defaults: Defaults) -> tuple[int, int]:
    """Request and limit of a new workload; what was not given follows what was."""
    request_bytes = _size(body, "request", largest, "1.0" if command else defaults.request)
    limit_bytes = _size(body, "limit", largest, f"{request_bytes}B" if command else defaults.limit)
    if "limit" not in body:
        limit_bytes = max(limit_bytes, request_bytes)
    elif "request" not in body:
        request_bytes = min(limit_bytes, request_bytes)
    return request_bytes, limit_bytes


def _whole(body: Mapping[str, Any], field: str, default: int, *, low: int, high: int) -> int:
    value = body.get(field, default)
    if type(value) is not int or not low <= value <= high:
        raise malformed(f"The field {field!r} is a whole number from {low} to {high}.")
    return value


def _flag(body: Mapping[str, Any], field: str, *, default: bool) -> bool:
    value = body.get(field, default)
    if not isinstance(value, bool):
        raise malformed(f"The field {field!r} is true or false.")
    return value


def _most_gpus(body: Mapping[str, Any], fewest: int, default: int | None) -> int | None:
    """The most Gpus of an elastic command; `None`: it takes as many as it asks for."""
    if body.get("gpus_max") is None and ("gpus_max" in body or default is None):
        return None
    most = _whole(body, "gpus_max", fewest if default is None else default, low=1, high=10**6)
    if most < fewest:
        raise impossible(f"The most GPUs ({most}) are fewer than the fewest ({fewest}): write them as MIN..MAX.")
    return max(fewest, min(most, GPUS_LIMIT))


def _gang(body: Mapping[str, Any]) -> str | None:
    gang = body.get("gang")
    if gang is None:
        return None
    if not isinstance(gang, str) or len(gang) > WORKLOAD_NAME_LIMIT or not clean_text(gang):
        raise malformed(f"A gang's name is a text of 1 to {WORKLOAD_NAME_LIMIT} characters.")
    return clean_text(gang)


def _gang_size(body: Mapping[str, Any], gang: str | None) -> int:
    if (body.get("gang_size") is None) is not (gang is None):
        raise malformed("The fields 'gang' and 'gang_size' go together: name the gang, and say how many it has.")
    return 1 if gang is None else _whole(body, "gang_size", 1, low=1, high=GANG_SIZE_LIMIT)


def _spec(spec: WorkloadSpec, limit_bytes: int) -> WorkloadSpec:
    if spec.kind is not Kind.COMMAND and (spec.elastic or spec.gang is not None):
        raise impossible("Only commands (nls run) can be elastic or in a gang: a notebook asks for a fixed number.")
    if spec.elastic and spec.gang is not None:
        raise impossible("A gang's members have a fixed number of GPUs each: give one number, or no gang.")
    if spec.request_bytes > limit_bytes:
        raise impossible(
            f"The request ({format_bytes(spec.request_bytes)}) is above the limit ({format_bytes(limit_bytes)}): "
            "lower the request or raise the limit."
        )
    return spec


def _pools(body: Mapping[str, Any], default: tuple[str, ...], policy: Policy) -> tuple[str, ...]:
    """The pools in order of preference, written as `a,b`."""
    given = body.get("pools")
    if given is None:
        return default
    names = tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else ()
    if not names or len(set(names)) != len(names):
        raise malformed("The field 'pools' is a text of pool names with commas, the most wanted first, each once.")
    known = tuple(pool.name for pool in policy.all_pools)
    for name in names:
        if name not in known:
            raise impossible(f"This node has no pool {clean_text(name)[:_SHOWN]!r}: choose from {', '.join(known)}.")
    return names


def _in_pools(pools: tuple[str, ...], gpus: Collection[Gpu], policy: Policy) -> Collection[Gpu]:
    """The Gpus that these pools offer; never empty."""
    offered = [gpu for gpu in gpus if (pool := policy.pool_of(gpu)).name in pools and pool.enabled]
    if not offered:
        which = "pool " + " or ".join(repr(name) for name in pools)
        why_not, until = "has no GPU in service on this node", "for one"
        if not any(pool.enabled for pool in policy.all_pools if pool.name in pools):
            why_not, until = "was turned off by an administrator", "until it is on"
        there = Counter(pool.name for gpu in gpus if (pool := policy.pool_of(gpu)).enabled)
        others = ", ".join(f"{name} ({_count(number)})" for name, number in there.items())
        advice = f"name another pool, of {others}, or wait {until}" if others else f"wait {until}"
        raise impossible(f"The {which} {why_not}: {advice}.")
    return offered


def _largest(gpus: Collection[Gpu]) -> Gpu:
    return max(gpus, key=lambda gpu: (gpu.memory_total_bytes, -gpu.index))


def _refuse_too_large(spec: WorkloadSpec, gpus: Collection[Gpu], policy: Policy) -> None:
    largest = _largest(gpus)
    there_is = f"the largest is {largest.label} ({largest.name}) with {format_bytes(largest.memory_total_bytes)}"
    for word, size_bytes in (("request", spec.request_bytes), ("limit", spec.limit_bytes)):
        if size_bytes > largest.memory_total_bytes:
            raise impossible(f"No GPU of this node has {format_bytes(size_bytes)} for the {word}: {there_is}.")
    if spec.gpu_count > len(gpus):
        raise impossible(f"This node has {_count(len(gpus))}, not {spec.gpu_count}: ask for fewer.")
    if spec.gpu_count > 1:
        gpus = [gpu for gpu in gpus if gpu.parent is None]
        if spec.gpu_count > len(gpus):
            slices = f"This node has {_count(len(gpus))} besides MIG slices"
            raise impossible(f"{slices}, and a process sees one slice at most: ask for one GPU, or for fewer.")
    fitting = sum(gpu.memory_total_bytes >= spec.request_bytes for gpu in gpus)
    if spec.gpu_count > fitting:
        raise impossible(
            f"Only {_count(fitting)} of this node have {format_bytes(spec.request_bytes)}, "
            f"not {spec.gpu_count}: ask for fewer or for less."
        )
    in_pools = Counter(policy.pool_of(gpu).name for gpu in gpus if gpu.memory_total_bytes >= spec.request_bytes)
    most = max(in_pools.values())
    if spec.gpu_count > most:
        whole = "the fewest come" if spec.elastic else "a fixed number comes"
        raise impossible(
            f"No pool of {', '.join(spec.pools)} has more than {_count(most)} for that, and {whole} from one pool: "
            f"ask for fewer than {spec.gpu_count}, or for {most}..{spec.gpu_counts[0]}."
        )


def _count(number: int) -> str:
    return f"{number} usable GPU{'' if number == 1 else 's'}"
