"""The simulated Gpus pass the drivers' contract, and promise more: capacity, liveness and release, without a daemon."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from driver_contract import READY_WITHIN_S, DriverContract, Holder

from nls_scheduler.drivers import simulated_memory
from nls_scheduler.drivers.selection import Selection
from nls_scheduler.drivers.simulated import (
    SimulatedDriver,
    SimulatedGpu,
    SimulatedGpuLost,
    SimulatedOutOfMemory,
    SimulationSpec,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 2**30
CONTEXT = 256 << 20
SPEC = SimulationSpec(2, 4 * GIB)

HOLD = """
import os, sys
from nls_scheduler.drivers.simulated import SimulatedGpu
gpu = SimulatedGpu.from_environment(os.environ)
gpu.allocate({memory_bytes})
print("ready", flush=True)
sys.stdin.readline()
"""

# Takes a MiB at a time until there is no more, and says how many it got.
COMPETE = """
import os, sys
from nls_scheduler.drivers.simulated import SimulatedGpu, SimulatedOutOfMemory
gpu = SimulatedGpu.from_environment(os.environ)
print("ready", flush=True)
sys.stdin.readline()
taken = 0
try:
    while True:
        gpu.allocate(1 << 20)
        taken += 1
except SimulatedOutOfMemory:
    print(taken, flush=True)
sys.stdin.readline()
"""

# A finalizer runs while a fork has the ledger locked: hooks that are registered first run last before a fork.
FREE_IN_A_FORK = """
import os, sys
freed = lambda: None
os.register_at_fork(before=lambda: freed())
from nls_scheduler.drivers.simulated import SimulatedGpu
gpu = SimulatedGpu.from_environment(os.environ)
gpu.allocate(1 << 30)
freed = lambda: gpu.free_deferred(1 << 30)
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
print("ready", flush=True)
sys.stdin.readline()
"""

FORK = """
import os
from nls_scheduler.drivers.simulated import SimulatedGpu
gpu = SimulatedGpu.from_environment(os.environ)
context_bytes = gpu.memory_info()[0]
gpu.allocate(1 << 20)
context_bytes -= gpu.memory_info()[0] + (1 << 20)
child = os.fork()
if child == 0:
    assert gpu.used_bytes() == 0
    try:
        gpu.free(1 << 20)
    except ValueError:
        pass
    else:
        os._exit(1)
    gpu.free_deferred(0)
    gpu.allocate(2 << 20)
    os._exit(0 if gpu.used_bytes() == context_bytes + (2 << 20) else 2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert gpu.used_bytes() == context_bytes + (1 << 20)
free, total = gpu.memory_info()
assert total - free == gpu.used_bytes()
"""


@pytest.fixture
def driver(tmp_path):
    made = SimulatedDriver(tmp_path / "simulation", SPEC, CONTEXT)
    yield made
    made.close()


@pytest.fixture
def gpu(driver):
    return SimulatedGpu.from_environment(driver.environment([info.uuid for info in driver.discover()]))


@pytest.fixture
def start(driver):
    holders = []

    def run(code, count=2):
        uuids = [info.uuid for info in driver.discover()][:count]
        holders.append(Holder(code, dict(driver.environment(uuids))))
        return holders[-1]

    yield run
    for holder in holders:
        holder.close()


def held(driver, identity, index=0):
    return driver.sample()[driver.discover()[index].uuid].processes.get(identity)


class TestSimulatedDriverContract(DriverContract):
    @pytest.fixture
    def driver(self, tmp_path):
        made = SimulatedDriver(tmp_path / "simulation", SPEC, CONTEXT)
        yield made
        made.close()

    @pytest.fixture
    def break_gpu(self, tmp_path):
        return lambda uuid: (tmp_path / "simulation" / f"unhealthy-{uuid}").write_text("a simulated Xid 79\n")

    @pytest.fixture
    def lose_gpu(self, tmp_path):
        def lose(uuid):
            ledgers = simulated_memory.read_simulation(tmp_path / "simulation")
            next(ledger.path for ledger in ledgers if ledger.gpu.uuid == uuid).unlink()

        return lose

    @pytest.fixture
    def serving(self, tmp_path):
        return lambda wanted: SimulatedDriver(tmp_path / "simulation", SPEC, CONTEXT, Selection.parse(wanted))

    @pytest.fixture
    def memory_code(self):
        return lambda memory_bytes: HOLD.format(memory_bytes=memory_bytes)


class TestSpec:
    def test_count_times_size_is_understood(self):
        assert SimulationSpec.parse("2x16GiB") == SimulationSpec(2, 16 * GIB)
        assert SimulationSpec.parse(" 1 x 500M ") == SimulationSpec(1, 500_000_000)

    @pytest.mark.parametrize(
        "text", ["", "16GiB", "0x16GiB", "2x", "2x0", "-1x1GiB", "2x16Gib extra", "999x1GiB", "x1GiB"]
    )
    def test_anything_else_is_refused_with_a_sentence(self, text):
        with pytest.raises(ValueError, match=r"\.$"):
            SimulationSpec.parse(text)

    def test_a_context_that_does_not_fit_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="does not fit"):
            SimulatedDriver(tmp_path, SimulationSpec(1, GIB), GIB)


class TestMemory:
    def test_the_context_counts_once_and_only_when_the_gpu_is_used(self, driver, gpu):
        assert held(driver, gpu.process) is None
        gpu.attach()
        gpu.attach()
        assert held(driver, gpu.process) == CONTEXT
        gpu.allocate(GIB)
        assert held(driver, gpu.process) == CONTEXT + GIB
        gpu.free(GIB)
        assert held(driver, gpu.process) == CONTEXT
        assert held(driver, gpu.process, 1) is None

    def test_two_ways_to_the_same_gpu_are_one_process_there(self, driver, gpu):
        again = SimulatedGpu.from_environment(driver.environment([gpu.uuid]))
        gpu.allocate(GIB)
        again.set_allowance(2 * GIB)
        assert (again.used_bytes(), again.allocated_bytes(), gpu.allowance_bytes()) == (CONTEXT + GIB, GIB, 2 * GIB)

    def test_an_allocation_beyond_the_gpu_takes_nothing_and_says_who_holds_what(self, gpu, start):
        other = start(HOLD.format(memory_bytes=3 * GIB))
        gpu.allocate(GIB // 4)
        with pytest.raises(SimulatedOutOfMemory, match=f"pid {other.process.pid}: 3.2 GiB") as caught:
            gpu.allocate(GIB)
        error = caught.value
        assert (error.requested_bytes, error.used_bytes, error.allowance_bytes) == (GIB, CONTEXT + GIB // 4, None)
        assert error.others == {other.identity: CONTEXT + 3 * GIB}
        assert gpu.used_bytes() == CONTEXT + GIB // 4

    def test_an_allocation_beyond_the_allowance_names_it_and_a_larger_one_helps(self, gpu):
        gpu.set_allowance(GIB)
        with pytest.raises(SimulatedOutOfMemory, match="of its allowance of 1 GiB"):
            gpu.allocate(GIB)
        gpu.set_allowance(2 * GIB)
        gpu.allocate(GIB)
        gpu.set_allowance(GIB)  # what it has, it keeps
        assert gpu.used_bytes() == CONTEXT + GIB
        gpu.set_allowance(None)
        gpu.allocate(GIB)

    def test_the_context_itself_may_not_fit(self, gpu):
        gpu.set_allowance(CONTEXT - 1)
        with pytest.raises(SimulatedOutOfMemory):
            gpu.attach()
        assert gpu.used_bytes() == 0

    def test_what_would_fit_without_its_context_says_so(self, gpu):
        total_bytes = gpu.memory_info()[1]
        with pytest.raises(
            SimulatedOutOfMemory, match=r"and the CUDA context of [\d.]+ MiB on a simulated GPU"
        ) as caught:
            gpu.allocate(total_bytes)
        assert (caught.value.requested_bytes, caught.value.context_bytes) == (total_bytes, CONTEXT)
        gpu.allocate(GIB // 4)
        with pytest.raises(SimulatedOutOfMemory) as caught:
            gpu.allocate(total_bytes)
        assert "context" not in str(caught.value)

    def test_the_error_survives_pickling(self, gpu):
        with pytest.raises(SimulatedOutOfMemory) as caught:
            gpu.allocate(100 * GIB)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.requested_bytes) == (str(caught.value), 100 * GIB)

    def test_freeing_more_than_was_allocated_is_refused(self, gpu):
        gpu.allocate(GIB)
        with pytest.raises(ValueError, match="Cannot free"):
            gpu.free(GIB + 1)
        with pytest.raises(ValueError, match="Cannot allocate"):
            gpu.allocate(-1)

    def test_threads_lose_nothing(self, gpu):
        gpu.attach()

        def work():
            for _ in range(50):
                gpu.allocate(4096)
                gpu.free(4096)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(READY_WITHIN_S)
        assert gpu.used_bytes() == CONTEXT

    def test_a_finalizer_that_runs_while_the_ledger_is_locked_waits_for_its_turn(self, gpu):
        gpu.allocate(GIB)
        with simulated_memory._this_process.locked():
            gpu.free_deferred(GIB)  # must not wait for the lock that this thread holds
        assert gpu.used_bytes() == CONTEXT


class TestProcesses:
    def test_two_processes_that_compete_never_get_more_than_the_gpu_has(self, driver, start):
        both = [start(COMPETE), start(COMPETE)]
        for holder in both:
            holder.go_on()
        taken = [int(holder.read_line()) << 20 for holder in both]
        assert sum(taken) + 2 * CONTEXT == SPEC.memory_bytes
        sample = driver.sample()[driver.discover()[0].uuid]
        assert sample.memory_used_bytes == SPEC.memory_bytes
        assert sample.processes == {h.identity: t + CONTEXT for h, t in zip(both, taken, strict=True)}

    def test_kill_9_releases_at_once_even_before_anybody_reaps(self, driver, gpu, start):
        holder = start(HOLD.format(memory_bytes=3 * GIB))
        with pytest.raises(SimulatedOutOfMemory):
            gpu.allocate(3 * GIB)
        holder.kill()
        os.waitid(os.P_PID, holder.process.pid, os.WEXITED | os.WNOWAIT)  # dead, and still a zombie
        gpu.allocate(3 * GIB)
        assert held(driver, gpu.process) == CONTEXT + 3 * GIB

    def test_what_a_finalizer_frees_during_a_fork_is_free_after_it(self, driver, start):
        start(FREE_IN_A_FORK)
        assert driver.sample()[driver.discover()[0].uuid].memory_used_bytes == CONTEXT

    def test_a_forked_child_is_a_process_of_its_own(self, driver):
        environment = {**os.environ, **driver.environment([driver.discover()[0].uuid])}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        subprocess.run([sys.executable, "-c", FORK], env=environment, check=True, timeout=READY_WITHIN_S)

    def test_a_reused_pid_does_not_inherit_the_memory(self, driver, gpu):
        gpu.allocate(GIB)
        path = simulated_memory.read_simulation(driver_directory(driver))[0].path
        content = bytearray(path.read_bytes())
        start_time = gpu.process.start_time.to_bytes(8, "little")
        at = content.index(start_time)
        content[at : at + 8] = (gpu.process.start_time - 1).to_bytes(8, "little")
        path.write_bytes(content)
        assert driver.sample()[gpu.uuid].memory_used_bytes == 0

    def test_places_of_the_dead_are_used_again(self, driver, gpu, start):
        for _ in range(3):
            start(HOLD.format(memory_bytes=GIB)).close()
        gpu.attach()
        path = simulated_memory.read_simulation(driver_directory(driver))[0].path
        assert path.stat().st_size == simulated_memory._RECORD.size


def driver_directory(driver):
    return Path(driver.environment([])["NLS_SIMULATION"])


class TestVisibleGpus:
    def test_the_mask_decides_which_gpu_comes_first(self, driver):
        first, second = [info.uuid for info in driver.discover()]
        shown = SimulatedGpu.visible(driver.environment([second, first]))
        assert [g.uuid for g in shown] == [second, first]
        assert SimulatedGpu.from_environment(driver.environment([second])).uuid == second

    @pytest.mark.parametrize(
        ("mask", "count"), [("", 0), ("1", 1), ("1,0", 2), ("GPU-unknown,0", 0), ("0,GPU-unknown,1", 1)]
    )
    def test_masks_mean_what_they_mean_in_cuda(self, driver, mask, count):
        environment = {**driver.environment([]), "CUDA_VISIBLE_DEVICES": mask}
        assert len(SimulatedGpu.visible(environment)) == count

    def test_without_a_mask_all_gpus_are_visible_and_outside_a_simulation_none(self, driver):
        environment = dict(driver.environment([]))
        del environment["CUDA_VISIBLE_DEVICES"]
        assert len(SimulatedGpu.visible(environment)) == 2
        assert SimulatedGpu.from_environment({}) is None

    def test_a_simulation_that_has_ended_is_said_to_have_ended(self, tmp_path):
        with pytest.raises(SimulatedGpuLost, match="has ended"):
            SimulatedGpu.from_environment({"NLS_SIMULATION": str(tmp_path)})


def test_a_simulation_keeps_no_limits_and_says_so(driver, tmp_path):
    assert not driver.limits_supported()
    with pytest.raises(OSError, match="does not limit"):
        driver.limit_memory(driver.discover()[0].uuid, tmp_path, GIB, None)


class TestSelection:
    def test_only_the_selected_gpus_are_served(self, tmp_path):
        driver = SimulatedDriver(tmp_path / "simulation", SPEC, CONTEXT, Selection.parse("1"))
        assert [gpu.index for gpu in driver.discover()] == [1]
        assert list(driver.sample()) == [driver.discover()[0].uuid]
        driver.close()

    @pytest.mark.parametrize(("wanted", "found"), [("5", []), ("0,5", [0])])
    def test_what_is_selected_and_not_there_is_said_with_what_there_is(self, tmp_path, wanted, found):
        driver = SimulatedDriver(tmp_path / "simulation", SPEC, CONTEXT, Selection.parse(wanted))
        assert [gpu.index for gpu in driver.discover()] == found
        assert "This machine has no GPU 5: it has 0 (GPU-" in driver.trouble()
        driver.close()


class TestDirectory:
    def test_closing_leaves_no_file_when_nobody_lives(self, tmp_path):
        driver = SimulatedDriver(tmp_path / "simulation", SPEC, CONTEXT)
        driver.close()
        assert list(tmp_path.iterdir()) == []

    def test_closing_leaves_living_processes_their_memory_for_the_next_daemon(self, tmp_path, driver, start):
        holder = start(HOLD.format(memory_bytes=GIB))
        driver.close()
        again = SimulatedDriver(tmp_path / "simulation", SPEC, CONTEXT)
        assert again.discover() == driver.discover()
        assert held(again, holder.identity) == CONTEXT + GIB
        holder.close()
        again.close()
        assert not (tmp_path / "simulation").exists()

    def test_closing_leaves_those_who_are_about_to_allocate_their_gpu(self, tmp_path, driver, gpu):
        gpu.set_allowance(2 * GIB)
        driver.close()
        gpu.allocate(GIB)
        again = SimulatedDriver(tmp_path / "simulation", SPEC, CONTEXT)
        assert held(again, gpu.process) == CONTEXT + GIB
        again.close()

    def test_closing_leaves_the_gpus_to_workloads_whose_processes_are_yet_to_come(self, tmp_path, driver):
        environment = driver.environment([driver.discover()[0].uuid])
        driver.close(in_use=True)
        assert SimulatedGpu.from_environment(environment) is not None
        SimulatedDriver(tmp_path / "simulation", SPEC, CONTEXT).close()
        assert not (tmp_path / "simulation").exists()

    def test_another_simulation_takes_the_directory_only_when_nobody_uses_the_old_one(self, tmp_path, start):
        holder = start(HOLD.format(memory_bytes=GIB))
        with pytest.raises(ValueError, match=str(holder.process.pid)):
            SimulatedDriver(tmp_path / "simulation", SimulationSpec(1, GIB), CONTEXT)
        holder.close()
        other = SimulatedDriver(tmp_path / "simulation", SimulationSpec(1, GIB), CONTEXT)
        assert [info.memory_total_bytes for info in other.discover()] == [GIB]
        other.close()

    def test_two_simulations_on_one_machine_have_different_uuids(self, tmp_path, driver):
        other = SimulatedDriver(tmp_path / "other", SPEC, CONTEXT)
        assert not {g.uuid for g in other.discover()} & {g.uuid for g in driver.discover()}
        other.close()

    def test_where_its_files_cannot_be_written_memory_is_read_and_none_is_taken(self, gpu, monkeypatch):
        """As in a unit with ReadOnlyPaths=/run: a sentence, not a bare error of the system."""
        opened = os.open

        def read_only(path, flags, *rest, **options):
            if flags & os.O_RDWR and str(path).endswith(".ledger"):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return opened(path, flags, *rest, **options)

        monkeypatch.setattr(os, "open", read_only)
        assert gpu.memory_info()[0] == gpu.memory_info()[1]
        with pytest.raises(SimulatedGpuLost, match=r"cannot be written \(Read-only file system\): .* --state-dir"):
            gpu.allocate(GIB)

    def test_a_gpu_without_its_ledger_has_vanished(self, driver, gpu):
        gpu.allocate(GIB)
        simulated_memory.read_simulation(driver_directory(driver))[0].path.unlink()
        assert list(driver.sample()) == [driver.discover()[0].uuid]
        assert driver.discover()[0].index == 1
        with pytest.raises(SimulatedGpuLost):
            gpu.allocate(1)
        gpu.free_deferred(GIB)  # a finalizer has nobody to complain to

    def test_without_any_ledger_the_driver_says_why_there_is_none(self, driver):
        for one in simulated_memory.read_simulation(driver_directory(driver)):
            one.path.unlink()
        assert driver.discover() == ()
        assert "gone" in driver.trouble()


SOMEBODY = 65533


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
@pytest.mark.parametrize("for_everybody", [True, False])
def test_a_simulation_for_everybody_has_memory_for_another_users_process(for_everybody: bool) -> None:
    """Beside the socket of a system daemon, whose umask opens nothing."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:  # TMPDIR may be one user's own
        Path(made).chmod(0o755)
        before = os.umask(0o077)
        try:
            driver = SimulatedDriver(Path(made) / "simulated", SPEC, CONTEXT, for_everybody=for_everybody)
        finally:
            os.umask(before)
        environment = driver.environment([driver.discover()[0].uuid])
        assert _held_by_another_user(environment) == (CONTEXT + (1 << 20) if for_everybody else PermissionError)
        driver.close()


def _held_by_another_user(environment: Mapping[str, str]) -> int | type[OSError]:
    """A MiB and its context, taken and given back by this process as somebody else."""
    os.seteuid(SOMEBODY)
    try:
        (gpu,) = SimulatedGpu.visible(environment) or ()
        gpu.allocate(1 << 20)
        free_bytes, total_bytes = gpu.memory_info()
        gpu.free(1 << 20)
    except PermissionError as error:
        return type(error)
    finally:
        os.seteuid(0)
    return total_bytes - free_bytes


def test_a_full_disk_is_told_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / f".simulation.json.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        SimulatedDriver(tmp_path, SPEC, CONTEXT)
    assert caught.value.filename == str(tmp_path)


def test_gpus_are_simulated_in_a_folder_whose_name_is_no_text(tmp_path):
    (folder := tmp_path / "n\nl\udcff").mkdir()
    made = SimulatedDriver(folder / "simulation", SPEC, CONTEXT)
    assert len({gpu.uuid for gpu in made.discover()}) == SPEC.count
    made.close()
