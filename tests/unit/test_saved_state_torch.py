"""Saved state of PyTorch objects: storages once, so that views, tied weights and optimizers keep their identity."""

from __future__ import annotations

import numpy as np
import pytest

from saved_state_roundtrip import Roundtrip

torch = pytest.importorskip("torch")


def test_views_share_their_storage():
    base = torch.arange(10.0)
    result = Roundtrip({"base": base, "part": base[2:8:2], "matrix": base.view(2, 5).T, "alias": base})
    result["base"].fill_(5)
    assert result["part"].tolist() == [5, 5, 5]
    assert result["matrix"].stride() == (1, 5)
    assert result["matrix"].eq(5).all()
    assert result["alias"] is result["base"]


def test_a_storage_counts_once():
    base = torch.zeros(1 << 18)
    saved = {name.name: name for name in Roundtrip({"base": base, "view": base[1:]}).manifest.saved}
    assert saved["base"].memory_bytes >= 1 << 20
    assert saved["view"].memory_bytes < 1000
    assert (saved["base"].where, saved["base"].type_name) == ("host", "torch.Tensor")


def test_a_model_and_its_optimizer_go_on_training():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    net[2].weight = net[0].weight  # tied
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    result = Roundtrip({"optimizer": optimizer, "net": net})
    again, weight = result["net"], result["net"][0].weight
    assert again[2].weight is weight
    assert type(weight) is torch.nn.Parameter
    assert weight.requires_grad
    assert torch.equal(weight.grad, net[0].weight.grad)
    assert result["optimizer"].param_groups[0]["params"][0] is weight
    for model, steps in ((net, optimizer), (again, result["optimizer"])):
        steps.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        steps.step()
    assert torch.equal(weight, net[0].weight)


def test_what_autograd_recorded_is_refused_and_not_cut_off_in_silence():
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * 2).sum()
    loss.backward()
    result = Roundtrip({"weight": weight, "loss": loss, "history": [loss], "kept": loss.detach()})
    assert result.unsaved == {
        "loss": "a tensor with autograd history cannot be saved; keep its `.detach()` instead",
        "history": "it holds a tensor with autograd history; keep its `.detach()` instead",
    }
    assert result["weight"].requires_grad
    assert result["weight"].grad.tolist() == [2, 2, 2]
    assert result["kept"].item() == 6


def test_a_tensor_and_a_numpy_array_over_one_memory_stay_over_one_memory():
    tensor, array = torch.arange(4.0), np.arange(6.0)
    names = {
        "of_tensor": tensor.numpy(),
        "slice_of_tensor": tensor.numpy()[1:],
        "tensor": tensor,
        "of_array": torch.from_numpy(array),
        "of_slice": torch.from_numpy(array[2:]),
        "array": array,
    }
    result = Roundtrip(names)
    result["tensor"].fill_(7)
    result["array"][:] = 8
    assert result["of_tensor"].tolist() == [7] * 4
    assert result["slice_of_tensor"].tolist() == [7] * 3
    assert result["of_array"].tolist() == [8] * 6
    assert result["of_slice"].tolist() == [8] * 4


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(0, 3),
        torch.tensor(3),
        torch.ones(2, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.complex(torch.ones(2), torch.ones(2)).conj(),
        torch.complex(torch.ones(2), torch.ones(2)).conj().imag,
        torch.eye(3).to_sparse(),
        torch.ones(2, 3).expand(4, 2, 3),
        torch.nn.Parameter(torch.ones(2), requires_grad=False),
    ],
    ids=lambda tensor: f"{tensor.dtype}-{tensor.layout}-{tuple(tensor.shape)}",
)
def test_kinds_of_tensors(tensor):
    again = Roundtrip({"t": tensor})["t"]
    assert (type(again), again.dtype, again.shape, again.layout) == (
        type(tensor),
        tensor.dtype,
        tensor.shape,
        tensor.layout,
    )
    assert again.requires_grad == tensor.requires_grad
    assert torch.equal(again.to_dense(), tensor.to_dense())


def test_attributes_and_small_things_around_tensors_survive():
    tensor = torch.ones(2)
    tensor.tag = "mine"
    result = Roundtrip({"t": tensor, "dtype": torch.float16, "device": torch.device("cpu"), "size": tensor.shape})
    assert result["t"].tag == "mine"
    assert (result["dtype"], result["device"], result["size"]) == (torch.float16, torch.device("cpu"), tensor.shape)


def test_a_restored_tensor_can_be_resized():
    again = Roundtrip({"t": torch.ones(2)})["t"]
    again.resize_(100)
    assert again.shape == (100,)


def test_hooks_are_named():
    tensor = torch.ones(2, requires_grad=True)
    tensor.register_hook(lambda grad: grad)
    assert Roundtrip({"t": tensor}).unsaved == {"t": "a tensor with backward hooks cannot be saved"}
