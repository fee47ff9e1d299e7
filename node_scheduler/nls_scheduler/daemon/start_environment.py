"""What a new GPU process is told besides its mask: how many Gpus it has, JAX's part, its place in its gang. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model import gangs
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.requests.enforcement import JAX_FRACTION_VARIABLE, jax_fraction

if TYPE_CHECKING:
    from nls_scheduler.core.model.commands import StartProcess
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload

GPU_COUNT_VARIABLE: Final = "NLS_GPU_COUNT"
GANG_VARIABLE: Final = "NLS_GANG"
GANG_RANK_VARIABLE: Final = "NLS_GANG_RANK"
GANG_SIZE_VARIABLE: Final = "NLS_GANG_SIZE"


def start_environment(state: NodeState, command: StartProcess) -> dict[str, str]:
    """The variables for the process that `command` starts; ranks go from 0 in order of arrival."""
    variables = {GPU_COUNT_VARIABLE: str(len(command.gpus))}
    workload = state.workloads.get(command.workload)
    if workload is not None and (fraction := _jax_fraction(state, command, workload)) is not None:
        variables[JAX_FRACTION_VARIABLE] = fraction
    if workload is None or workload.spec.gang is None:
        return variables
    return variables | {
        GANG_VARIABLE: workload.spec.gang,
        GANG_RANK_VARIABLE: str(gangs.rank(state, workload)),
        GANG_SIZE_VARIABLE: str(workload.spec.gang_size),
    }


def _jax_fraction(state: NodeState, command: StartProcess, workload: Workload) -> str | None:
    """Of a notebook, in whose GPU process JAX takes memory as it needs it, or of a command, in which it is as ever."""
    totals = [state.gpus[uuid].memory_total_bytes for uuid in command.gpus if uuid in state.gpus]
    if not totals:
        return None
    preallocates = workload.spec.kind is not Kind.NOTEBOOK
    return jax_fraction(workload.spec.limit_bytes, min(totals), workload.context_bytes, preallocates=preallocates)
