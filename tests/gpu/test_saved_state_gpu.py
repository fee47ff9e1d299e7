"""Saved state of CuPy arrays and CUDA tensors on a real Gpu."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from nls_jupyter.saved_state import Interpreter, Saver, device_hash, fused_hash
from saved_state_roundtrip import Roundtrip, restore, saved

pytestmark = pytest.mark.gpu


class TestCupy:
    def test_views_share_their_memory(self, cupy):
        base = cupy.arange(12.0).reshape(3, 4)
        names = {"base": base, "back": base[::-1, 1:], "turned": base.T, "flat": base.ravel()[3:5], "alias": base}
        result = Roundtrip(names)
        for name, array in names.items():
            for attribute in ("shape", "strides", "dtype"):
                assert getattr(result[name], attribute) == getattr(array, attribute)
            assert np.array_equal(result[name].get(), array.get())
        result["base"][...] = 7
        assert all((result[name] == 7).all() for name in names)
        assert result["alias"] is result["base"]

    def test_a_block_is_saved_once_and_named_as_gpu_memory(self, cupy):
        base = cupy.zeros(1 << 20, cupy.uint8)
        saved = {name.name: name for name in Roundtrip({"base": base, "view": base[5:]}).manifest.saved}
        assert saved["base"].memory_bytes >= 1 << 20
        assert saved["view"].memory_bytes < 1000
        assert {name.where for name in saved.values()} == {"gpu"}

    def test_work_that_still_runs_is_waited_for(self, cupy):
        matrix = cupy.full((4096, 4096), 1 / 4096, cupy.float32)
        with cupy.cuda.Stream(non_blocking=True):
            for _ in range(20):
                matrix = matrix @ matrix * 4096 / 4096
        again = Roundtrip({"matrix": matrix})["matrix"]
        assert cupy.allclose(again, 1 / 4096)

    def test_it_comes_back_after_the_pool_gave_everything_away(self, cupy):
        names = {"a": cupy.arange(1 << 20), "empty": cupy.zeros((0, 3)), "one": cupy.asarray(2.5)}
        expected = names["a"].get()
        with saved(names) as (descriptors, _):
            names.clear()
            cupy.get_default_memory_pool().free_all_blocks()
            report = restore(descriptors, names)
        assert not report.missing
        assert np.array_equal(names["a"].get(), expected)
        assert (names["empty"].shape, float(names["one"])) == ((0, 3), 2.5)

    def test_what_no_longer_fits_is_named(self, cupy):
        names = {"large": cupy.zeros(64 << 20, cupy.uint8), "host": [1]}
        pool = cupy.get_default_memory_pool()
        with saved(names) as (descriptors, _):
            names.clear()
            pool.free_all_blocks()
            pool.set_limit(size=32 << 20)
            try:
                report = restore(descriptors, names)
            finally:
                pool.set_limit(size=0)
        assert names == {"host": [1]}
        assert "OutOfMemoryError" in report.missing[0].reason

    def test_what_has_not_changed_on_the_device_is_not_copied(self, cupy):
        names = {"a": cupy.random.random(1 << 23)}
        with contextlib.closing(Saver()) as saver:
            saver.save(names, cell=None)
            names["a"][5] += 1
            saver.save(names, cell=None)
            assert saver._committed.blobs.hashed_bytes < 2 << 20
            namespace = {}
            restore(saver.descriptors(), namespace)
        assert cupy.array_equal(namespace["a"], names["a"])

    def test_streams_and_events_are_named(self, cupy):
        result = Roundtrip({"stream": cupy.cuda.Stream(), "event": cupy.cuda.Event(), "x": 1})
        assert set(result.unsaved) == {"stream", "event"}
        assert result.namespace == {"x": 1}


class TestTorch:
    def test_views_share_their_storage_on_the_device(self, torch):
        base = torch.arange(10.0, device="cuda")
        result = Roundtrip({"base": base, "part": base[2:8:2], "host": base.cpu()})
        result["base"].fill_(5)
        assert result["part"].tolist() == [5, 5, 5]
        assert (result["base"].device, result["host"].device.type) == (base.device, "cpu")

    def test_a_model_and_its_optimizer_go_on_training(self, torch):
        net = torch.nn.Linear(4, 4).cuda()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        net(torch.ones(2, 4, device="cuda")).sum().backward()
        optimizer.step()
        result = Roundtrip({"net": net, "optimizer": optimizer})
        for model, steps in ((net, optimizer), (result["net"], result["optimizer"])):
            steps.zero_grad()
            model(torch.ones(2, 4, device="cuda")).sum().backward()
            steps.step()
        assert torch.equal(result["net"].weight, net.weight)
        assert {name.where for name in result.manifest.saved} == {"gpu"}

    def test_streams_and_events_are_named(self, torch):
        assert set(Roundtrip({"s": torch.cuda.Stream(), "e": torch.cuda.Event()}).unsaved) == {"s", "e"}

    def test_what_has_not_changed_on_the_device_is_not_copied(self, torch):
        names = {"t": torch.rand(1 << 24, device="cuda")}
        with contextlib.closing(Saver()) as saver:
            saver.save(names, cell=None)
            names["t"][5] += 1
            saver.save(names, cell=None)
            assert saver._committed.blobs.hashed_bytes < 2 << 20
            namespace = {}
            restore(saver.descriptors(), namespace)
        assert torch.equal(namespace["t"], names["t"])

    def test_the_devices_fingerprints_are_the_hosts(self, torch):
        words = torch.randint(-(2**62), 2**62, (3 << 17,), device="cuda")
        on_host = device_hash.fingerprints(np, words.cpu().numpy().view(np.uint64))
        assert device_hash.tensor_fingerprints(words) == on_host

    @pytest.mark.parametrize("size", [5, 1 << 20, (3 << 20) + 13, 100 << 20])
    def test_one_launch_gives_the_same_fingerprints_as_many_and_as_the_host(self, torch, size, monkeypatch):
        content = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
        in_one = fused_hash.of_tensor(content)
        if in_one is None:
            pytest.skip("this PyTorch compiles no kernels")
        monkeypatch.setenv(fused_hash.SWITCH, "launches")
        host, whole = content.cpu().numpy(), size // 8 * 8
        assert in_one == device_hash.of_tensor(content)
        assert in_one == device_hash.fingerprints(np, host[:whole].view(np.uint64), host[whole:])

    def test_the_random_numbers_go_on(self, torch):
        torch.cuda.manual_seed(5)
        stored, _ = Interpreter().capture()
        expected = torch.rand(100, device="cuda")
        assert not Interpreter().apply(stored, early=False)
        assert torch.equal(torch.rand(100, device="cuda"), expected)


class TestMemoryOfTwoLibraries:
    def test_an_array_over_a_tensor_shows_it_again(self, cupy, torch):
        tensor = torch.arange(1000.0, device="cuda").reshape(20, 50)
        result = Roundtrip({"tensor": tensor, "array": cupy.from_dlpack(tensor)})
        assert not result.manifest.changed
        result["tensor"][3, 4] = -1
        torch.cuda.synchronize()
        assert float(result["array"][3, 4]) == -1

    def test_a_tensor_over_an_array_shows_it_again(self, cupy, torch):
        array = cupy.arange(1000.0).reshape(20, 50)
        result = Roundtrip({"tensor": torch.from_dlpack(array)[2:], "array": array})
        assert not result.manifest.changed
        result["array"][3, 4] = -1
        cupy.cuda.runtime.deviceSynchronize()
        assert float(result["tensor"][1, 4]) == -1

    def test_an_array_over_a_tensor_without_a_name_is_saved_whole(self, cupy, torch):
        array = cupy.from_dlpack(torch.rand(300, 400, device="cuda"))
        assert cupy.array_equal(Roundtrip({"array": array})["array"], array)
