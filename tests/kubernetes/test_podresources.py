"""Which of the kubelet's devices are GPUs, as its podresources socket tells them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from fake_kubelet import FakeKubelet
from nls_scheduler.kubernetes_driver.kubelet import Kubelet
from nls_scheduler.kubernetes_driver.podresources import KubeletError, PodResources

if TYPE_CHECKING:
    from pathlib import Path


def told(kubelet: FakeKubelet) -> dict[str, tuple[str, ...]]:
    async def ask() -> dict[str, tuple[str, ...]]:
        client = PodResources(kubelet.socket)
        try:
            return await client.allocations()
        finally:
            await client.close()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("resource", "given", "counted"),
    [
        ("nvidia.com/gpu", "GPU-1", "GPU-1"),
        ("nvidia.com/gpu", "made-up", "made-up"),
        ("nvidia.com/gpu.shared", "GPU-1::3", "GPU-1"),
        ("nvidia.com/mig-1g.24gb.me.all", "MIG-1", "MIG-1"),
        ("nvidia.com/gpu-for-students", "GPU-1::0", "GPU-1"),
        ("example.com/mig", "MIG-1", "MIG-1"),
    ],
)
def test_what_has_a_gpu_s_resource_or_its_uuid_is_one(tmp_path: Path, resource: str, given: str, counted: str) -> None:
    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.resource, kubelet.allocations = resource, {"default/train": [given]}
        assert told(kubelet) == {"default/train": (counted,)}


def test_a_gpu_that_a_pod_has_several_times_is_told_as_often(tmp_path: Path) -> None:
    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.allocations = {"default/train": ["GPU-1::0", "GPU-2::0", "GPU-1::3", "GPU-1::3"]}
        assert told(kubelet) == {"default/train": ("GPU-1", "GPU-2", "GPU-1")}


def test_other_devices_are_none(tmp_path: Path) -> None:
    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.resource, kubelet.allocations = "nvidia.com/hostdev", {"default/train": ["0000:3b:00.0"]}
        assert told(kubelet) == {}


def test_what_is_told_of_one_pod_in_several_places_is_all_its_own(tmp_path: Path) -> None:
    """One entry for each NUMA node of a resource; and a pod that ends beside the next of its name."""
    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.apart, kubelet.allocations = True, {"default/train": ["GPU-1", "GPU-2"]}
        assert told(kubelet) == {"default/train": ("GPU-1", "GPU-2")}
    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.allocations, kubelet.ending = {"default/train": ["GPU-1"]}, {"default/train": ["GPU-2"]}
        assert told(kubelet) == {"default/train": ("GPU-1", "GPU-2")}


def test_a_kubelet_that_is_back_is_heard_at_once_however_long_it_was_away(tmp_path: Path) -> None:
    async def main() -> None:
        client = PodResources(tmp_path / "kubelet.sock")
        try:
            for _ in range(3):
                with pytest.raises(KubeletError):
                    await client.allocations()
            with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
                kubelet.allocations = {"default/train": ["GPU-0"]}
                assert await client.allocations() == {"default/train": ("GPU-0",)}
        finally:
            await client.close()

    asyncio.run(main())


def test_however_many_wait_for_its_word_a_kubelet_is_asked_ten_times_a_second_at_most(tmp_path: Path) -> None:
    """It answers a hundred questions a second, of all who ask it, and refuses the others."""

    async def main() -> float:
        kubelet = Kubelet(fake.socket, lambda: None)
        asking = asyncio.create_task(kubelet.run())
        began = time.monotonic()
        try:
            while fake.calls < 5:
                kubelet.ask_soon()
                await asyncio.sleep(0)
            return time.monotonic() - began
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await kubelet.close()

    with FakeKubelet(tmp_path / "kubelet.sock") as fake:
        assert asyncio.run(main()) >= 0.4
