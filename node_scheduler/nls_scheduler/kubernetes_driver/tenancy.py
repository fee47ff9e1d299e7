"""What a notebook may have: what its pod was given, and never more. Pure.

Request, limit and the number of devices are the pod's, and the notebook may ask for less of each; queue and priority
are the pod's whatever the notebook says. Several notebooks in one pod share what it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.kubernetes_driver.quantities import as_bytes
from nls_scheduler.units.sizes import format_bytes, parse_size, to_bytes
from nls_scheduler.wire.errors import Problem, impossible, malformed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.kubernetes_driver.pods import PodRecord

_LENGTH_LIMIT: Final = 100


def allotment(
    body: Mapping[str, Any],
    pod: PodRecord,
    home: tuple[GpuUuid, ...],
    gpus: Mapping[GpuUuid, Gpu],
    counted_bytes: int | None,
    others: Collection[WorkloadSpec],
    instead_of: WorkloadSpec | None,
    queues: Collection[str] = (),
) -> tuple[dict[str, Any], tuple[GpuUuid, ...]]:
    """The fields of a submission for what `body` asks within what `pod` has, and the home that goes with it.

    `others`: the pod's other workloads. `instead_of`: what it has until now. `queues`: those of this daemon's policy
    that workloads can be in; a pod of another one is in the default queue, since its quota is kept by the cluster's
    scheduler. Raises Problem, which says who has it.
    """
    demand = pod.demand
    if demand is None or demand.devices < 1:
        raise Problem(409, "No GPU in this pod", _without_gpu(pod))
    if demand.is_too_small:
        detail = f"The pod {pod.key} asks for less than a MiB of a GPU: let it ask for more (gpu-fraction, gpu-memory)."
        raise Problem(409, "No GPU in this pod", detail)
    if not gpus:
        raise Problem(503, "Not ready", "The daemon sees no GPU on this node: ask again when it does.", "node")
    capacity = min((gpus[g].memory_total_bytes for g in home if g in gpus), default=_largest(gpus))
    allowed = min(capacity, as_bytes(demand.request, capacity, counted_bytes))
    ceiling = min(capacity, max(allowed, as_bytes(demand.limit, capacity, counted_bytes)))
    left = allowed - sum(other.request_bytes for other in others)
    if left < 1:
        names = " and ".join(sorted(other.name for other in others))
        detail = f"This pod's {format_bytes(allowed)} are held by {names}: let it ask for less (%gpu request)."
        raise Problem(409, "No room in this pod", detail)
    count = _count(body, demand.devices, instead_of)
    request = _size(body, "request", capacity)
    limit = _size(body, "limit", capacity)
    if request is None:
        request = left if instead_of is None else min(left, instead_of.request_bytes)
        request = request if limit is None else min(request, limit)
    if limit is None:
        limit = max(request, ceiling if instead_of is None else min(ceiling, instead_of.limit_bytes))
    if request > left:
        whose = "This pod has" if not others else "Of this pod's request the other notebooks leave"
        raise impossible(f"{whose} {format_bytes(left)}, not {format_bytes(request)}: ask for less, or change the pod.")
    if limit > ceiling:
        detail = f"This pod's limit is {format_bytes(ceiling)}, not {format_bytes(limit)}: ask for less, or change it."
        raise impossible(detail)
    fields = {key: value for key, value in body.items() if key not in ("pools", "priority", "queue")}
    # Its name is all that a notebook says of itself; the rest is the pod's.
    sizes = {"request": f"{request}B", "limit": f"{limit}B", "gpus": count, "priority": pod.priority}
    queue = {"queue": pod.queue} if pod.queue in queues else {}
    return {**fields, **sizes, **queue}, home[:count]


def _without_gpu(pod: PodRecord) -> str:
    return (
        f"The pod {pod.key} asks for no GPU: give it the annotation gpu-fraction (and schedulerName: kai-scheduler), "
        "or the limit nvidia.com/gpu."
    )


def _largest(gpus: Mapping[GpuUuid, Gpu]) -> int:
    return max(gpu.memory_total_bytes for gpu in gpus.values())


def _count(body: Mapping[str, Any], most: int, instead_of: WorkloadSpec | None) -> int:
    count = body.get("gpus", most if instead_of is None else instead_of.gpu_count)
    if type(count) is not int or count < 1:
        raise malformed("The field 'gpus' is a whole number from 1 on.")
    if count > most:
        raise impossible(f"This pod has {most} GPU{'' if most == 1 else 's'}, not {count}: ask for fewer.")
    return count


def _size(body: Mapping[str, Any], field: str, capacity_bytes: int) -> int | None:
    given = body.get(field)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise malformed(f"The {field} is not a size: write a fraction of a GPU such as 0.5, or bytes such as 8GiB.")
    try:
        # A float's rounding must not make half a GPU one byte more than half a GPU.
        size = parse_size(str(given)[:_LENGTH_LIMIT])
        return int(size * capacity_bytes) if isinstance(size, float) else to_bytes(size, capacity_bytes)
    except (ValueError, OverflowError) as error:
        raise malformed(f"The {field} {error}") from error
