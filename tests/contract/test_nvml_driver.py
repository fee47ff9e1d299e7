"""The NVML driver through the real nvidia-ml-py, on a library that the tests build and script."""

from __future__ import annotations

import _ctypes
import ctypes
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pynvml
import pytest
from driver_contract import DriverContract

from daemon_process import NLS, nls_environment
from nls_scheduler.core.model.events import GpuReading, PlacedUse
from nls_scheduler.core.model.ids import GpuUuid, ProcessId, WorkloadId
from nls_scheduler.core.model.topology import Link
from nls_scheduler.daemon.limits import MemoryLimits
from nls_scheduler.drivers import nvml, nvml_process
from nls_scheduler.drivers.nvml import LIST_INTERVAL_S, NvmlDriver
from nls_scheduler.drivers.nvml_survey import Surveyed, driver_version, survey
from nls_scheduler.drivers.selection import Selection
from nls_scheduler.processes.guardian import read_stat
from nls_scheduler.wire import locate
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCRIPT_VARIABLE = "NLS_NVML_STUB_SCRIPT"
GIB = 2**30
TWO_GPUS = f"gpu GPU-aaaa {144 * GIB} {GIB} {GIB // 2} 42\ngpu GPU-bbbb {144 * GIB} {GIB} 0 0\n"
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, GPU_IS_LOST, MISMATCH, UNKNOWN = 3, 4, 9, 15, 18, 999
ME = os.getpid()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub, compiled."""
    compiler = shutil.which("gcc")
    if compiler is None:
        assert os.environ.get("CI") != "true", "gcc is needed to build the NVML stub"
        pytest.skip("there is no gcc to build the NVML stub")
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml_stub.c")
    flags = ["-shared", "-fPIC", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", str(path), str(source)], check=True)
    return path


@pytest.fixture
def script(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The stub's script, two Gpus at first; nvidia-ml-py talks to the stub, even where a real driver is loaded."""
    path = tmp_path / "nvml.txt"
    path.write_text(TWO_GPUS)
    monkeypatch.setenv(SCRIPT_VARIABLE, str(path))
    loaded = ctypes.CDLL(str(library))
    monkeypatch.setattr(pynvml, "nvmlLib", loaded)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    yield path
    # A real library could not be loaded later while one of the same name is.
    _ctypes.dlclose(loaded._handle)


@pytest.fixture
def driver(script: Path) -> Iterator[NvmlDriver]:
    driver = NvmlDriver()
    driver.discover()
    yield driver
    driver.close()


def add(script: Path, *lines: str) -> None:
    with script.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def indexes(driver: NvmlDriver) -> list[tuple[int, str]]:
    """Of the Gpus that it finds now, in its order."""
    return [(gpu.index, gpu.uuid) for gpu in driver.discover()]


def me() -> ProcessId:
    stat = read_stat(ME)
    assert stat is not None
    return ProcessId(ME, stat[1])


class TestNvmlDriver(DriverContract):
    """Everything that each driver promises."""

    @pytest.fixture
    def driver(self, driver: NvmlDriver) -> NvmlDriver:  # type: ignore[override]
        return driver

    @pytest.fixture
    def break_gpu(self, script: Path) -> Callable[[GpuUuid], None]:
        return lambda uuid: add(script, f"xid {uuid} 79")

    @pytest.fixture
    def lose_gpu(self, script: Path) -> Callable[[GpuUuid], None]:
        def lose(uuid: GpuUuid) -> None:
            lines = script.read_text().splitlines(keepends=True)
            script.write_text("".join(line for line in lines if uuid not in line))

        return lose

    @pytest.fixture
    def serving(self) -> Callable[[str], NvmlDriver]:
        return lambda wanted: NvmlDriver(Selection.parse(wanted))

    @pytest.fixture
    def memory_code(self) -> Callable[[int], str]:
        def code(memory_bytes: int) -> str:
            return (
                "import os, sys\n"
                "uuid = os.environ['CUDA_VISIBLE_DEVICES'].split(',')[0]\n"
                f"with open(os.environ['{SCRIPT_VARIABLE}'], 'a') as script:\n"
                f"    script.write(f'process {{uuid}} {{os.getpid()}} {memory_bytes}\\n')\n"
                "print('ready', flush=True)\n"
                "sys.stdin.readline()\n"
            )

        return code


def test_what_the_driver_reserves_is_neither_offered_nor_counted_as_used(driver: NvmlDriver) -> None:
    assert [gpu.memory_total_bytes for gpu in driver.discover()] == [143 * GIB, 143 * GIB]
    assert [sample.memory_used_bytes for sample in driver.sample().values()] == [GIB // 2, 0]
    assert driver.sample()["GPU-aaaa"].utilisation == 0.42


def test_cuda_counts_in_the_same_order_as_nvml(driver: NvmlDriver) -> None:
    assert driver.environment(["GPU-bbbb"]) == {
        "CUDA_VISIBLE_DEVICES": "GPU-bbbb",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_a_process_learns_what_the_driver_shows_of_it_and_nothing_of_others(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_process, "in_first_namespace", lambda: True)
    nvml_process._handle.cache_clear()
    assert nvml_process.own_memory_bytes("GPU-aaaa") is None
    add(script, f"process GPU-aaaa {os.getppid()} {GIB}", f"process GPU-aaaa {ME} {2 * GIB}")
    assert nvml_process.own_memory_bytes("GPU-aaaa") == 2 * GIB
    assert nvml_process.own_memory_bytes("GPU-bbbb") is None
    assert nvml_process.own_memory_bytes("GPU-unknown") is None
    add(script, f"fail nvmlDeviceGetComputeRunningProcesses_v3 {GPU_IS_LOST}")
    assert nvml_process.own_memory_bytes("GPU-aaaa") is None
    nvml_process._handle.cache_clear()


def test_in_a_pid_namespace_of_its_own_a_process_learns_nothing(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_process, "in_first_namespace", lambda: False)
    nvml_process._handle.cache_clear()
    add(script, f"process GPU-aaaa {ME} {2 * GIB}")
    assert nvml_process.own_memory_bytes("GPU-aaaa") is None
    nvml_process._handle.cache_clear()


def test_mig_slices_stand_in_the_place_of_their_gpu(script: Path) -> None:
    add(script, f"mig 0 MIG-one {18 * GIB} 0 0", f"mig 0 MIG-two {18 * GIB} 0 {GIB}", f"process MIG-two {ME} {GIB}")
    driver = NvmlDriver()
    assert indexes(driver) == [(0, "MIG-one"), (1, "MIG-two"), (2, "GPU-bbbb")]
    assert driver.sample()["MIG-two"].processes == {me(): GIB}
    driver.close()


def test_a_gpu_that_is_cut_into_slices_later_changes_no_others_index_and_its_slices_are_served_for_it(
    script: Path, driver: NvmlDriver
) -> None:
    chosen = NvmlDriver(Selection.parse("0"))
    assert indexes(chosen) == [(0, "GPU-aaaa")]
    add(script, f"mig 0 MIG-one {18 * GIB} 0 0", f"mig 0 MIG-two {18 * GIB} 0 0")
    assert indexes(driver) == [(1, "GPU-bbbb"), (2, "MIG-one"), (3, "MIG-two")]
    assert indexes(chosen) == [(2, "MIG-one"), (3, "MIG-two")]
    chosen.close()


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_a_gpu_that_does_not_answer_has_its_index_all_the_same(script: Path, function: str) -> None:
    add(script, f"fail {function} {GPU_IS_LOST} GPU-aaaa")
    driver = NvmlDriver()
    assert indexes(driver) == [(1, "GPU-bbbb")]
    script.write_text(TWO_GPUS)
    assert indexes(driver) == [(0, "GPU-aaaa"), (1, "GPU-bbbb")]
    driver.close()


def test_a_gpu_that_comes_later_gets_an_index_that_nobody_had(script: Path, driver: NvmlDriver) -> None:
    a, b = TWO_GPUS.splitlines()
    script.write_text(f"{b}\ngpu GPU-cccc {GIB} 0 0 0\n")
    assert indexes(driver) == [(1, "GPU-bbbb"), (2, "GPU-cccc")]
    script.write_text(f"{a}\n{b}\ngpu GPU-cccc {GIB} 0 0 0\n")
    assert indexes(driver) == [(0, "GPU-aaaa"), (1, "GPU-bbbb"), (2, "GPU-cccc")]


def test_a_gpu_with_the_uuid_of_another_or_without_memory_is_left_out(script: Path) -> None:
    add(script, f"gpu GPU-aaaa {GIB} 0 0 0", f"gpu GPU-none {GIB} {2 * GIB} 0 0", "gpu GPU-zero 0 0 0 0")
    add(script, f"gpu GPU-cccc {GIB} 0 0 0")
    driver = NvmlDriver()
    assert indexes(driver) == [(0, "GPU-aaaa"), (1, "GPU-bbbb"), (5, "GPU-cccc")]
    assert driver.discover()[0].memory_total_bytes == 143 * GIB
    driver.close()


def test_a_process_that_computes_and_draws_counts_once(script: Path, driver: NvmlDriver) -> None:
    add(script, f"process GPU-aaaa {ME} 1000 both")
    assert driver.sample()["GPU-aaaa"].processes == {me(): 1000}


def test_who_computes_is_told_for_each_process_where_the_driver_says_so(script: Path, driver: NvmlDriver) -> None:
    assert driver.use_by_process() == {}
    add(script, f"process GPU-aaaa {ME} 1000", f"process GPU-bbbb {ME} 1000")
    assert driver.use_by_process() == {me(): 0.42}
    add(script, f"fail nvmlDeviceGetProcessUtilization {NOT_SUPPORTED} GPU-aaaa")
    assert driver.use_by_process() == {me(): 0.0}


def test_a_process_whose_memory_is_hidden_is_still_there(script: Path, driver: NvmlDriver) -> None:
    add(script, f"process GPU-aaaa {ME} hidden")
    assert driver.sample()["GPU-aaaa"].processes == {me(): None}


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, UNKNOWN])
@pytest.mark.parametrize(
    ("function", "lost"),
    [
        ("nvmlDeviceGetUtilizationRates", {"utilisation": None}),
        ("nvmlDeviceGetComputeRunningProcesses_v3", {"processes": None}),
        ("nvmlDeviceGetGraphicsRunningProcesses_v3", {}),
        ("nvmlDeviceGetMemoryInfo_v2", {"memory_used_bytes": GIB // 2 + GIB + 1000}),
        ("nvmlDeviceGetMigMode", {}),
    ],
)
def test_a_field_that_the_driver_refuses_costs_that_field_only(
    script: Path, driver: NvmlDriver, function: str, lost: dict[str, object], code: int
) -> None:
    expected = {"memory_used_bytes": GIB // 2 + 1000, "processes": {me(): 1000}, "utilisation": 0.42} | lost
    add(script, f"process GPU-aaaa {ME} 1000", f"fail {function} {code} GPU-aaaa")
    assert len(driver.discover()) == 2
    sample = driver.sample()["GPU-aaaa"]
    assert {name: getattr(sample, name) for name in expected} == expected
    assert driver.sample()["GPU-bbbb"].memory_used_bytes == 0


def test_a_name_that_the_driver_refuses_is_replaced(script: Path, driver: NvmlDriver) -> None:
    add(script, f"fail nvmlDeviceGetName {UNKNOWN}")
    assert [gpu.name for gpu in driver.discover()] == ["NVIDIA GPU", "NVIDIA GPU"]


def test_memory_that_cannot_be_read_at_all_is_unknown_and_not_zero(script: Path, driver: NvmlDriver) -> None:
    add(script, "fail nvmlDeviceGetMemoryInfo 3", "fail nvmlDeviceGetMemoryInfo_v2 3")
    assert {sample.memory_used_bytes for sample in driver.sample().values()} == {None}


def test_a_gpu_that_fell_off_the_bus_is_missing_and_the_other_is_not(script: Path, driver: NvmlDriver) -> None:
    add(script, *(f"fail {function} {GPU_IS_LOST} GPU-aaaa" for function in (
        "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID",
    )))  # fmt: skip
    assert list(driver.sample()) == ["GPU-bbbb"]
    assert [gpu.uuid for gpu in driver.discover()] == ["GPU-bbbb"]


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (f"fail nvmlInitWithFlags {DRIVER_NOT_LOADED}", "installed but not loaded"),
        (f"fail nvmlInitWithFlags {MISMATCH}", "restart the machine"),
        (f"fail nvmlInitWithFlags {NO_PERMISSION}", "check the rights of /dev/nvidia*"),
        (f"fail nvmlInitWithFlags {UNKNOWN}", "does not work"),
        (f"fail nvmlDeviceGetCount_v2 {UNKNOWN}", "does not work"),
    ],
)
def test_a_driver_that_does_not_work_gives_no_gpu_and_a_sentence_until_it_works(
    script: Path, failure: str, says: str
) -> None:
    driver = NvmlDriver()
    add(script, failure)
    assert driver.discover() == ()
    why = driver.trouble()
    assert why is not None
    assert says in why
    assert driver.sample() == {}
    script.write_text(TWO_GPUS)
    assert len(driver.discover()) == 2
    assert driver.trouble() is None
    driver.close()


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_an_applications_own_xid_harms_no_gpu(script: Path, driver: NvmlDriver, xid: int) -> None:
    add(script, f"xid GPU-aaaa {xid}")
    assert driver.health() == {}


@pytest.mark.parametrize("xid", [48, 63, 79, 95, 119, 999])
def test_any_other_xid_makes_the_gpu_unhealthy_and_is_named(script: Path, driver: NvmlDriver, xid: int) -> None:
    add(script, f"xid GPU-bbbb {xid}")
    assert list(driver.health()) == ["GPU-bbbb"]
    assert f"Xid {xid}" in driver.health()["GPU-bbbb"]


def test_an_xid_is_remembered_through_another_discovery_and_told_of_again_after_a_return(
    script: Path, driver: NvmlDriver
) -> None:
    add(script, "xid GPU-aaaa 79")
    driver.health()
    driver.discover()
    assert "fallen off the bus" in driver.health()["GPU-aaaa"]
    driver.return_to_service(GpuUuid("GPU-aaaa"))
    assert driver.health() == {}
    add(script, "xid GPU-aaaa 48")
    assert "double bit ECC error" in driver.health()["GPU-aaaa"]


def test_an_xid_of_a_mig_gpu_hits_the_slice_that_it_names_or_all_of_them(script: Path, driver: NvmlDriver) -> None:
    add(script, f"mig 0 MIG-one {GIB} 0 0", f"mig 0 MIG-two {GIB} 0 0")
    assert [gpu.parent for gpu in driver.discover()] == [None, "GPU-aaaa", "GPU-aaaa"]
    add(script, "xid GPU-aaaa 95 1")
    assert list(driver.health()) == ["MIG-two"]
    add(script, "xid GPU-aaaa 79")
    assert set(driver.health()) == {"MIG-one", "MIG-two"}


@pytest.mark.parametrize(
    "function", ["nvmlDeviceRegisterEvents", "nvmlEventSetCreate", "nvmlEventSetWait_v2", "nvmlDeviceGetHandleByUUID"]
)
def test_without_xids_everything_else_works(script: Path, function: str) -> None:
    add(script, f"fail {function} {NOT_SUPPORTED}", "xid GPU-aaaa 79")
    driver = NvmlDriver()
    assert len(driver.discover()) == 2
    assert driver.health() == {}
    assert len(driver.sample()) == 2
    driver.close()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_expensive_list_is_asked_for_only_when_something_has_changed_or_time_has_passed(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    real = pynvml.nvmlDeviceGetComputeRunningProcesses
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda h: asked.append(h) or real(h))
    clock = Clock()
    driver = NvmlDriver(Selection.parse("GPU-aaaa"), clock)
    driver.discover()
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        add(script, f"process GPU-aaaa {sleeper.pid} {GIB}")
        assert len(driver.sample()["GPU-aaaa"].processes or {}) == 1
        driver.sample()
        assert len(asked) == 1
        clock.now += LIST_INTERVAL_S
        driver.sample()
        assert len(asked) == 2
        add(script, f"process GPU-aaaa {ME} {GIB}")
        assert len(driver.sample()["GPU-aaaa"].processes or {}) == 2
        assert len(asked) == 3
        # Memory looks the same, but one of those who hold it has ended.
        add(script, f"gpu GPU-cccc {GIB} 0 0 0")
        script.write_text(script.read_text().replace(f"{GIB // 2} 42", f"{GIB // 2 + GIB} 42"))
        sleeper.kill()
    assert driver.sample()["GPU-aaaa"].memory_used_bytes == GIB // 2 + 2 * GIB
    assert driver.sample()["GPU-aaaa"].processes == {me(): GIB}
    assert len(asked) == 4
    driver.close()


def test_nvlink_goes_before_what_pcie_s_tree_says(script: Path, driver: NvmlDriver) -> None:
    add(script, f"gpu GPU-cccc {GIB} 0 0 0", "nvlink GPU-aaaa GPU-bbbb", "ancestor GPU-aaaa GPU-bbbb 40")
    add(script, "ancestor GPU-bbbb GPU-cccc 10", "numa GPU-aaaa 1", "numa GPU-bbbb 1")
    a, b, c = driver.discover()
    assert a.links == {"GPU-bbbb": Link.NVLINK, "GPU-cccc": Link.SYSTEM}
    assert b.links == {"GPU-aaaa": Link.NVLINK, "GPU-cccc": Link.SWITCH}
    assert [gpu.numa_node for gpu in (a, b, c)] == [1, 1, None]


@pytest.mark.parametrize(
    ("level", "link"),
    [(0, "switch"), (10, "switch"), (20, "switch"), (30, "numa"), (40, "numa"), (50, "system")],
)
def test_each_level_of_pcie_s_tree_has_a_word(script: Path, driver: NvmlDriver, level: int, link: str) -> None:
    add(script, f"ancestor GPU-aaaa GPU-bbbb {level}")
    assert [gpu.links for gpu in driver.discover()] == [{"GPU-bbbb": link}, {"GPU-aaaa": link}]


def test_a_topology_that_the_driver_does_not_tell_is_left_out(script: Path, driver: NvmlDriver) -> None:
    for function in ("P2PStatus", "TopologyCommonAncestor", "MemoryAffinity", "NumaNodeId"):
        add(script, f"fail nvmlDeviceGet{function} {NO_PERMISSION}")
    assert [(gpu.links, gpu.numa_node) for gpu in driver.discover()] == [({}, None), ({}, None)]


def test_a_slice_has_no_links_and_its_gpu_s_numa_node(script: Path, driver: NvmlDriver) -> None:
    add(script, f"mig 0 MIG-one {GIB} 0 0", f"mig 0 MIG-two {GIB} 0 0", "numa GPU-aaaa 1", "nvlink GPU-aaaa GPU-bbbb")
    found = [(gpu.uuid, gpu.links, gpu.numa_node, gpu.parent) for gpu in driver.discover()]
    assert found == [
        ("GPU-bbbb", {}, None, None), ("MIG-one", {}, 1, "GPU-aaaa"), ("MIG-two", {}, 1, "GPU-aaaa"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("0", ["GPU-aaaa"]), ("GPU-bbbb", ["GPU-bbbb"]), ("1,GPU-aaaa", ["GPU-aaaa", "GPU-bbbb"]), ("7", []),
        ("GPU-bbbb, 9", ["GPU-bbbb"]), ("all", ["GPU-aaaa", "GPU-bbbb"]),
    ],
)  # fmt: skip
def test_only_the_selected_gpus_are_served(script: Path, wanted: str, found: list[str]) -> None:
    driver = NvmlDriver(Selection.parse(wanted))
    assert [gpu.uuid for gpu in driver.discover()] == found
    assert list(driver.sample()) == found
    missing = {"7": "7", "GPU-bbbb, 9": "9"}.get(wanted)
    told = f"This machine has no GPU {missing}: it has 0 (GPU-aaaa), 1 (GPU-bbbb)."
    assert driver.trouble() == (missing and told)
    driver.close()


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        (None, ["GPU-aaaa", "GPU-bbbb"]), ("", ["GPU-aaaa", "GPU-bbbb"]), ("1", ["GPU-bbbb"]), ("GPU-b", ["GPU-bbbb"]),
        ("1, 0", ["GPU-aaaa", "GPU-bbbb"]), ("0,-1,1", ["GPU-aaaa"]), ("1,none,0", ["GPU-bbbb"]), ("-1", []),
        ("NoDevFiles", []), ("7", []),
    ],
)  # fmt: skip
def test_by_default_those_are_served_that_cuda_would_see(script: Path, shown: str | None, found: list[str]) -> None:
    driver = NvmlDriver(Selection.from_environment({} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}))
    assert [gpu.uuid for gpu in driver.discover()] == found
    if not found:
        assert ("no GPU 7" if shown == "7" else "CUDA_VISIBLE_DEVICES shows this daemon no GPU") in str(
            driver.trouble()
        )
    driver.close()


def test_a_gpus_uuid_selects_its_slices(script: Path) -> None:
    add(script, f"mig 0 MIG-one {GIB} 0 0", f"mig 0 MIG-two {GIB} 0 0")
    for wanted, found in (("GPU-aaaa", ["MIG-one", "MIG-two"]), ("MIG-two", ["MIG-two"])):
        driver = NvmlDriver(Selection.parse(wanted))
        assert [gpu.uuid for gpu in driver.discover()] == found
        driver.close()


@pytest.mark.parametrize("text", ["", "0,,1", "first", "GPU 0", "-1"])
def test_what_names_no_gpu_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="write UUIDs or indexes"):
        Selection.parse(text)


KEEPS_LIMITS = pytest.mark.skipif(
    not hasattr(pynvml, "nvmlDeviceSetMemoryLimits_v1"),
    reason="this nvidia-ml-py does not know the driver's own limits: pip install -U nvidia-ml-py",
)


@KEEPS_LIMITS
def test_the_driver_itself_keeps_limits_where_it_can(
    script: Path, driver: NvmlDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "cgroup_of", lambda pid: None)
    assert not driver.limits_supported()
    monkeypatch.setattr(nvml, "cgroup_of", lambda pid: tmp_path)
    assert driver.limits_supported()
    driver.limit_memory(GpuUuid("GPU-bbbb"), tmp_path, GIB, 2 * GIB)
    driver.limit_memory(GpuUuid("GPU-bbbb"), tmp_path, GIB, None)
    told = [line for line in script.read_text().splitlines() if line.startswith("#")]
    assert told == [
        f"# limit GPU-bbbb {tmp_path} {GIB} {2 * GIB}", f"# limit GPU-bbbb {tmp_path} 0 {2**64 - 1}",
    ]  # fmt: skip


@KEEPS_LIMITS
def test_a_driver_that_keeps_no_limits_is_found_out_and_says_so(
    script: Path, driver: NvmlDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "cgroup_of", lambda pid: tmp_path)
    add(script, "fail nvmlDeviceGetMemoryLimits_v1 13", f"fail nvmlDeviceSetMemoryLimits_v1 {NO_PERMISSION}")
    assert not driver.limits_supported()
    with pytest.raises(OSError, match="does not limit"):
        driver.limit_memory(GpuUuid("GPU-bbbb"), tmp_path, GIB, 2 * GIB)


def test_the_survey_for_the_doctor(script: Path) -> None:
    assert survey() == [Surveyed("Stub H200", True)] * 2
    add(script, f"fail nvmlDeviceGetPersistenceMode {NOT_SUPPORTED} GPU-bbbb")
    assert survey() == [Surveyed("Stub H200", True), Surveyed("Stub H200", None)]
    add(script, f"fail nvmlDeviceGetName {GPU_IS_LOST} GPU-aaaa")
    add(script, "mode GPU-bbbb 3")
    assert survey() == [Surveyed(None, None), Surveyed("Stub H200", None, is_shareable=False)]
    assert driver_version() == "615.71"
    add(script, f"fail nvmlInitWithFlags {DRIVER_NOT_LOADED}")
    with pytest.raises(OSError, match="not loaded"):
        survey()
    assert driver_version() is None


def test_a_machine_whose_driver_shows_no_gpu_says_so(script: Path) -> None:
    script.write_text("")
    driver = NvmlDriver()
    assert driver.discover() == ()
    assert "nvidia-smi -L" in str(driver.trouble())
    driver.close()


def test_a_gpu_that_has_no_memory_of_its_own_is_not_served_and_says_so(script: Path) -> None:
    script.write_text(f"gpu GPU-spark {GIB} 0 0 0\n")
    add(script, *(f"fail nvmlDeviceGetMemoryInfo{version} {NOT_SUPPORTED}" for version in ("", "_v2")))
    driver = NvmlDriver()
    assert driver.discover() == ()
    assert "no memory of GPU 0 (Stub H200)" in str(driver.trouble())
    driver.close()
    (surveyed,) = survey()
    assert not surveyed.has_memory


@pytest.mark.parametrize("mode", [pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, pynvml.NVML_COMPUTEMODE_PROHIBITED])
def test_a_gpu_that_several_processes_cannot_use_is_served_and_says_so(script: Path, mode: int) -> None:
    add(script, f"mode GPU-bbbb {mode}")
    driver = NvmlDriver()
    assert indexes(driver) == [(0, "GPU-aaaa"), (1, "GPU-bbbb")]
    assert "compute mode of GPU 1 keeps a second process out" in str(driver.trouble())
    script.write_text(TWO_GPUS)
    driver.discover()
    assert driver.trouble() is None
    driver.close()


def test_a_daemon_serves_the_gpus_that_nvml_shows(script: Path, library: Path, tmp_path: Path) -> None:
    socket = tmp_path / "nls.sock"
    variables = {"LD_LIBRARY_PATH": str(library.parent), SCRIPT_VARIABLE: str(script)}
    environment = {**nls_environment(NLS_SOCKET=str(socket)), **variables}
    add(script, f"process GPU-bbbb {ME} {8 * GIB}")
    with subprocess.Popen([*NLS, "up"], env=environment, stderr=subprocess.DEVNULL) as daemon:
        try:
            wait_until(lambda: locate.answers(socket))
            done = subprocess.run([*NLS, "status", "--json"], env=environment, capture_output=True, check=True)
            status = json.loads(done.stdout)
            masked = subprocess.run(
                [*NLS, "run", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"],
                env=environment, capture_output=True, text=True, check=True,
            )  # fmt: skip
        finally:
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(15) == 0
    assert not status["simulated"]
    assert [gpu["unplaced_bytes"] for gpu in status["gpus"]] == [0, 8 * GIB]
    # The Gpu on which somebody else's process computes is not the one for a whole-Gpu command.
    assert masked.stdout == "GPU-aaaa\n"


@pytest.mark.parametrize(("options", "served"), [([], ["GPU-bbbb"]), (["--gpus", "all"], ["GPU-aaaa", "GPU-bbbb"])])
def test_a_daemon_serves_what_its_user_shows_cuda_unless_it_is_told_otherwise(
    script: Path, library: Path, tmp_path: Path, options: list[str], served: list[str]
) -> None:
    socket = tmp_path / "nls.sock"
    variables = {"LD_LIBRARY_PATH": str(library.parent), SCRIPT_VARIABLE: str(script), "CUDA_VISIBLE_DEVICES": "1"}
    environment = {**nls_environment(NLS_SOCKET=str(socket)), **variables}
    with subprocess.Popen([*NLS, "up", *options], env=environment, stderr=subprocess.PIPE, text=True) as daemon:
        try:
            wait_until(lambda: locate.answers(socket))
            done = subprocess.run([*NLS, "status", "--json"], env=environment, capture_output=True, check=True)
        finally:
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(15) == 0
        assert daemon.stderr is not None
        told = daemon.stderr.read()
    assert [gpu["uuid"] for gpu in json.loads(done.stdout)["gpus"]] == served
    assert ("CUDA_VISIBLE_DEVICES" in told) == (not options)


@KEEPS_LIMITS
def test_the_limits_of_a_workload_with_a_cgroup_of_its_own_reach_the_driver(
    script: Path, driver: NvmlDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "cgroup_of", lambda pid: tmp_path)
    limits = MemoryLimits(driver, lambda pid: tmp_path)
    mine = PlacedUse(WorkloadId("w"), ProcessId(1, 1), GIB)
    limits.keep({GpuUuid("GPU-aaaa"): GpuReading(GIB, (mine,), {})}, {WorkloadId("w"): (GIB, 2 * GIB)})
    limits.lift_all()
    told = [line for line in script.read_text().splitlines() if line.startswith("#")]
    assert told == [
        f"# limit GPU-aaaa {tmp_path} {GIB} {2 * GIB}", f"# limit GPU-aaaa {tmp_path} 0 {2**64 - 1}",
    ]  # fmt: skip
