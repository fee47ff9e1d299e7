"""What each `nls_scheduler.daemon.ports.Driver` promises; its tests inherit this and say how to use memory."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model.ids import ProcessId
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.daemon.ports import Driver

READY_WITHIN_S = 30


class Holder:
    """A process of its own that runs Python code, prints a line when it is ready, and waits to be ended."""

    def __init__(self, code: str, environment: dict[str, str]) -> None:
        environment = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.said = self.read_line()

    @property
    def identity(self) -> ProcessId:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii", errors="replace")
        return ProcessId(self.process.pid, int(fields.rpartition(") ")[2].split()[19]))

    def read_line(self) -> str:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], READY_WITHIN_S)
        assert readable, "the process said nothing"
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=READY_WITHIN_S)


class DriverContract:
    """Inherit, and provide the fixtures `driver` and `memory_code`."""

    @pytest.fixture
    def driver(self) -> Driver:
        raise NotImplementedError

    @pytest.fixture
    def memory_code(self) -> Callable[[int], str]:
        """Python code that takes so many bytes on its first visible Gpu, prints `ready` and waits for stdin."""
        raise NotImplementedError

    @pytest.fixture
    def break_gpu(self) -> Callable[[GpuUuid], None]:
        """Makes a Gpu unhealthy as the driver would find out."""
        raise NotImplementedError

    @pytest.fixture
    def lose_gpu(self) -> Callable[[GpuUuid], None]:
        """Takes a Gpu away, as when it has fallen off the bus."""
        raise NotImplementedError

    @pytest.fixture
    def serving(self) -> Callable[[str], Driver]:
        """Another driver of the same Gpus, which serves the named ones."""
        raise NotImplementedError

    @pytest.fixture
    def hold(self, driver: Driver, memory_code: Callable[[int], str]) -> Iterator[Callable[[GpuUuid, int], Holder]]:
        holders: list[Holder] = []

        def start(uuid: GpuUuid, memory_bytes: int) -> Holder:
            holders.append(Holder(memory_code(memory_bytes), dict(driver.environment([uuid]))))
            assert holders[-1].said == "ready"
            return holders[-1]

        yield start
        for holder in holders:
            holder.close()

    def test_discovery_names_each_gpu_once_in_display_order(self, driver):
        gpus = driver.discover()
        assert gpus
        assert len({gpu.uuid for gpu in gpus}) == len(gpus)
        assert [gpu.index for gpu in gpus] == sorted({gpu.index for gpu in gpus})
        assert all(gpu.uuid.startswith(("GPU-", "MIG-")) and gpu.name and gpu.memory_total_bytes > 0 for gpu in gpus)
        assert driver.trouble() is None

    def test_discovery_gives_the_same_answer_again(self, driver):
        assert list(driver.discover()) == list(driver.discover())

    def test_a_gpu_keeps_its_index_when_another_is_lost(self, driver, lose_gpu):
        first, *others = driver.discover()
        lose_gpu(first.uuid)
        left = {gpu.uuid: gpu.index for gpu in driver.discover()}
        assert left == {gpu.uuid: gpu.index for gpu in others}

    def test_a_gpu_that_was_chosen_by_its_index_is_not_followed_by_another(self, serving, lose_gpu):
        driver = serving("0")
        (chosen,) = driver.discover()
        lose_gpu(chosen.uuid)
        assert not driver.discover()
        assert chosen.uuid not in driver.sample()
        assert driver.trouble() is not None
        driver.close()

    def test_what_is_there_and_not_chosen_is_left_out(self, driver, serving):
        first, *others = (gpu.uuid for gpu in driver.discover())
        assert driver.left_out() == frozenset()
        chosen = serving("0")
        assert [gpu.uuid for gpu in chosen.discover()] == [first]
        assert chosen.left_out() == frozenset(others)
        chosen.close()

    def test_links_are_told_from_both_ends_and_never_to_a_gpu_itself(self, driver):
        gpus = {gpu.uuid: gpu for gpu in driver.discover()}
        for gpu in gpus.values():
            assert gpu.uuid not in gpu.links
            assert all(gpus[other].links[gpu.uuid] is link for other, link in gpu.links.items() if other in gpus)
            assert gpu.numa_node is None or gpu.numa_node >= 0

    def test_a_sample_covers_each_discovered_gpu(self, driver):
        samples = driver.sample()
        for gpu in driver.discover():
            used_bytes = samples[gpu.uuid].memory_used_bytes
            assert used_bytes is None or 0 <= used_bytes <= gpu.memory_total_bytes
            utilisation = samples[gpu.uuid].utilisation
            assert utilisation is None or 0 <= utilisation <= 1

    def test_the_environment_masks_to_the_gpus_in_the_order_given(self, driver):
        uuids = [gpu.uuid for gpu in driver.discover()][::-1]
        assert driver.environment(uuids)["CUDA_VISIBLE_DEVICES"] == ",".join(uuids)

    def test_a_process_that_takes_memory_is_seen_with_it_on_its_gpu_only(self, driver, hold):
        here, *elsewhere = [gpu.uuid for gpu in driver.discover()]
        holder = hold(here, 64 << 20)
        samples = driver.sample()
        held_bytes = samples[here].processes[holder.identity]
        assert held_bytes is None or held_bytes >= 64 << 20
        used_bytes = samples[here].memory_used_bytes
        assert used_bytes is None or used_bytes >= 64 << 20
        assert all(holder.identity not in samples[uuid].processes for uuid in elsewhere)

    def test_memory_of_a_killed_process_is_free_again(self, driver, hold):
        uuid = driver.discover()[0].uuid
        holder = hold(uuid, 64 << 20)
        identity = holder.identity
        holder.kill()
        holder.process.wait(READY_WITHIN_S)
        wait_until(lambda: identity not in driver.sample()[uuid].processes)

    def test_a_gpu_that_breaks_is_unhealthy_with_a_reason_until_it_is_returned(self, driver, break_gpu):
        first, *others = [gpu.uuid for gpu in driver.discover()]
        assert driver.health() == {}
        break_gpu(first)
        assert list(driver.health()) == [first]
        assert driver.health()[first]
        driver.discover()
        assert list(driver.health()) == [first]
        for uuid in (*others, first, first):
            driver.return_to_service(uuid)
        assert driver.health() == {}

    def test_closing_twice_is_closing_once(self, driver):
        driver.close()
        driver.close()
