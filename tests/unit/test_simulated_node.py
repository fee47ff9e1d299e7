"""The virtual node answers as supervisors and drivers do."""

import pytest

from nls_scheduler.core.model.commands import StopProcess
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.simulator import GIB, SimulatedNode


@pytest.fixture
def node() -> SimulatedNode:
    return SimulatedNode.of(1, 16 * GIB)


def test_a_cell_ends_with_the_process_that_it_runs_in(node: SimulatedNode) -> None:
    workload = node.submit()
    node.settle()
    node.start_cell(workload)
    node.kill(workload)
    assert not node.workloads[workload].executing
    assert node.of_workload(workload).cell_since is None


def test_a_cell_that_waits_for_a_process_goes_on_waiting(node: SimulatedNode) -> None:
    workload = node.submit()
    node.start_cell(workload)
    node.release(workload)
    assert [type(command) for command in node.pending] == [StopProcess]
    node.complete(node.pending[0])
    assert node.workloads[workload].executing


def test_who_has_no_process_holds_nothing(node: SimulatedNode) -> None:
    """And comes back with what was saved of it."""
    workload = node.submit(request_bytes=4 * GIB)
    node.settle()
    node.hold(workload, 2 * GIB)
    node.kill(workload)
    node.hold(workload, 8 * GIB)
    node.settle()
    assert node.of_workload(workload).phase is Phase.RUNNING
    assert [process.held_bytes for process in node.processes if process.alive] == [2 * GIB]
