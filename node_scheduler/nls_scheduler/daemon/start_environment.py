"""What a new GPU process is told besides its mask: how many Gpus it has, and its place in its gang. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model import gangs

if TYPE_CHECKING:
    from nls_scheduler.core.model.commands import StartProcess
    from nls_scheduler.core.model.state import NodeState

GPU_COUNT_VARIABLE: Final = "NLS_GPU_COUNT"
GANG_VARIABLE: Final = "NLS_GANG"
GANG_RANK_VARIABLE: Final = "NLS_GANG_RANK"
GANG_SIZE_VARIABLE: Final = "NLS_GANG_SIZE"


def start_environment(state: NodeState, command: StartProcess) -> dict[str, str]:
    """The variables for the process that `command` starts; ranks go from 0 in order of arrival."""
    variables = {GPU_COUNT_VARIABLE: str(len(command.gpus))}
    workload = state.workloads.get(command.workload)
    if workload is None or workload.spec.gang is None:
        return variables
    return variables | {
        GANG_VARIABLE: workload.spec.gang,
        GANG_RANK_VARIABLE: str(gangs.rank(state, workload)),
        GANG_SIZE_VARIABLE: str(workload.spec.gang_size),
    }
