"""Saved state of PyTorch objects: storages once, so that views, tied weights and optimizers keep their identity."""

from __future__ import annotations

import contextlib
import importlib

import numpy as np
import pytest

from nls_jupyter.saved_state import Interpreter, Saver, user_names
from saved_state_processes import carried, carried_on
from saved_state_roundtrip import Roundtrip, cells, check_in_a_new_process, of_user, restore, roundtrip

torch = pytest.importorskip("torch")
IMPORTED = "PyTorch is imported by each process"


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


def test_memory_that_other_processes_share_is_told_to_be_this_one_s_alone():
    shared = torch.zeros(2).share_memory_()
    result = Roundtrip({"shared": shared, "alone": torch.zeros(2)})
    assert not result["shared"].is_shared()
    changed = [(one.name, one.change) for one in result.manifest.changed]
    assert changed == [("shared", "memory shared with other processes comes back as ordinary memory")]


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


def test_what_autograd_recorded_is_named_and_not_cut_off_in_silence():
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * 2).sum()
    loss.backward()
    result = Roundtrip({"weight": weight, "loss": loss, "history": [loss], "kept": loss.detach()})
    assert not result.unsaved
    assert {changed.name for changed in result.manifest.changed} == {"loss"}
    assert {changed.change for changed in result.manifest.changed} == {
        "a tensor with autograd history comes back detached"
    }
    assert result["history"][0] is result["loss"]
    assert (result["loss"].grad_fn, result["loss"].requires_grad, result["loss"].item()) == (None, False, 6)
    with pytest.raises(RuntimeError, match="does not require grad"):
        result["loss"].backward()
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


@pytest.mark.parametrize("array_is_named", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        lambda tensor: torch.from_numpy(tensor.numpy()),
        lambda tensor: torch.from_numpy(tensor.numpy()[1:]),
        lambda tensor: torch.from_numpy(tensor[1:3].numpy()[1:]),
        lambda tensor: torch.utils.dlpack.from_dlpack(tensor),
        lambda tensor: torch.utils.dlpack.from_dlpack(tensor)[1:],
        lambda tensor: torch.nn.Parameter(torch.from_numpy(tensor.numpy())),
    ],
)
@pytest.mark.parametrize("first", [lambda: torch.arange(4.0), lambda: torch.from_numpy(np.arange(4.0, dtype="f4"))])
def test_tensors_over_one_memory_stay_over_one_memory(first, other, array_is_named):
    tensor = first()
    names = {"other": other(tensor), "tensor": tensor, "again": other(tensor)}
    if array_is_named:
        names["array"] = tensor.numpy()
    result = Roundtrip(names)
    assert not result.manifest.changed
    result["tensor"].fill_(7)
    assert all(set(result[name].tolist()) == {7} for name in names)
    assert [result[name].shape for name in names] == [thing.shape for thing in names.values()]


def test_tensors_side_by_side_in_one_memory_stay_there():
    memory = np.arange(6.0)
    names = {"left": torch.from_numpy(memory[:2]), "right": torch.from_numpy(memory[2:]), "empty": torch.empty(0)}
    result = Roundtrip({**names, "none": torch.empty(0)})
    result["left"].fill_(7)
    assert result["right"].tolist() == [2, 3, 4, 5]
    assert result["empty"].resize_(2).fill_(1).tolist() == [1, 1]
    assert result["none"].tolist() == []


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


def test_hooks_work_again():
    tensor = torch.ones(2, requires_grad=True)
    tensor.register_hook(lambda grad: grad * 10)
    again = Roundtrip({"t": tensor})["t"]
    (again * 2).sum().backward()
    assert again.grad.tolist() == [20, 20]


IN_BACKWARD = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
def in_backward(net):
    optimizers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in net.parameters()}
    def step(p):
        optimizers[p].step()
        p.grad = None
    return optimizers, [p.register_post_accumulate_grad_hook(step) for p in net.parameters()]
optimizers, handles = in_backward(net)
net(torch.ones(1, 2)).sum().backward()
"""


def test_an_optimizer_that_steps_within_backward_goes_on_until_its_handle_removes_it():
    names = cells(IN_BACKWARD)
    result = of_user(names)
    assert not result.unsaved
    assert not result.report.missing
    for handle in (names["handles"][0], result["handles"][0]):
        handle.remove()
    for net in (names["net"], result["net"]):
        net(torch.ones(1, 2)).sum().backward()
        assert [p.grad is None for p in net.parameters()] == [False, True, True, True]
    assert all(map(torch.equal, names["net"].parameters(), result["net"].parameters()))
    assert list(map(id, result["optimizers"])) == list(map(id, result["net"].parameters()))


def test_a_hook_that_is_given_between_saves_is_kept():
    weight, given = torch.ones(2, requires_grad=True), []
    with contextlib.closing(Saver()) as saver:
        saver.save({"weight": weight, "given": given}, cell=None)
        weight.register_post_accumulate_grad_hook(given.append)
        saver.save({"weight": weight, "given": given}, cell=None)
        namespace = {}
        restore(saver.descriptors(), namespace)
    namespace["weight"].sum().backward()
    assert namespace["given"][0] is namespace["weight"]


TOLD = """
import torch
said = []
class Careful(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
    def step(self):
        said.append("careful")
net = torch.nn.Linear(2, 1)
optimizer = KIND(net.parameters(), lr=0.1)
optimizer.note = said
def register(name):
    return getattr(optimizer, "register_" + name)(lambda *_: said.append(name))
handles = {name: register(name) for name in NAMES}
def steps():
    said.clear()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    return list(said)
"""
MOMENTS = [
    *("step_pre_hook", "step_post_hook", "state_dict_pre_hook", "state_dict_post_hook"),
    *("load_state_dict_pre_hook", "load_state_dict_post_hook"),
]


@pytest.mark.long(IMPORTED)
@pytest.mark.parametrize("kind", ["Careful", "torch.optim.SGD", "torch.optim.Adam"])
def test_hooks_and_attributes_of_an_optimizer_come_back_with_their_handles(kind):
    source = TOLD.replace("KIND", kind).replace("NAMES", str(MOMENTS))
    careful = ["careful"] if kind == "Careful" else []
    check = f"""
assert optimizer.note is said
assert steps() == {[MOMENTS[0], *careful, *MOMENTS[1:]]}, said
for handle in handles.values():
    handle.remove()
assert steps() == {careful}, said
"""
    exec(check, cells(source))
    check_in_a_new_process(source, check)


SCHEDULED = """
import torch
net = torch.nn.Linear(2, 1)
counted = []
optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
optimizer.register_step_post_hook(lambda *_: counted.append(1))
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
def epochs(count):
    for _ in range(count):
        optimizer.step()
        scheduler.step()
    return scheduler.last_epoch, round(optimizer.param_groups[0]["lr"], 9), len(counted)
epochs(BEFORE)
"""


@pytest.mark.long(IMPORTED)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_scheduler_and_its_optimizer_go_on_counting_without_a_warning(before):
    source = SCHEDULED.replace("BEFORE", str(before))
    check = f"""
import warnings
warnings.simplefilter("error")
assert epochs({4 - before}) == (4, 0.01, 4), epochs(0)
assert scheduler.optimizer is optimizer
"""
    exec(check, cells(source))
    check_in_a_new_process(source, check)


STEP_OF_ONES_OWN = """
import torch
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
said = []
def counting(step):
    def counts(*args):
        said.append("step")
        return step(*args)
    return counts
optimizer.step = counting(optimizer.step)
optimizer.register_step_pre_hook(lambda *_: said.append("hook"))
"""


@pytest.mark.long("PyTorch is imported by each process: what takes whose place is here")
def test_a_step_that_a_cell_gave_to_an_optimizer_goes_on_calling_the_one_before():
    check_in_a_new_process(STEP_OF_ONES_OWN, "optimizer.step(); assert said == ['step', 'hook'], said")


def test_an_optimizer_that_remembers_its_parameters_otherwise_goes_on():
    net = torch.nn.Linear(2, 1)
    result = Roundtrip({"net": net, "optimizer": torch.optim.LBFGS(net.parameters())})
    weight = result["net"].weight.detach().clone()
    result["optimizer"].step(lambda: _loss_of(result["net"]))
    assert not torch.equal(result["net"].weight, weight)


def _loss_of(net):
    loss = net(torch.ones(1, 2)).square().sum()
    loss.backward()
    return loss


OWN_WAY = """
import torch
class Forgets(torch.optim.SGD):
    def __getstate__(self):
        return super().__getstate__() | {"note": "by its own way"}
optimizer = Forgets([torch.nn.Parameter(torch.ones(2))], lr=0.1)
optimizer.note = optimizer.left = "an attribute"
"""


def test_an_optimizer_with_a_way_of_its_own_keeps_it():
    result = roundtrip(OWN_WAY)
    assert (result["optimizer"].note, hasattr(result["optimizer"], "left")) == ("by its own way", False)


OF_ALL_MODULES = """
import torch
from torch.nn.modules import module as of_all
from torch.optim import optimizer as of_optimizers
said = []
def teller(name):
    def tell(*_, **options):
        said.append(name)
    return tell
names = ["forward_pre_hook", "forward_hook", "full_backward_hook", "full_backward_pre_hook",
         "parameter_registration_hook"]
handles = [getattr(of_all, f"register_module_{name}")(teller(name)) for name in names]
handles.append(of_all.register_module_forward_hook(lambda module, args, options, out: said.append(options),
                                                   with_kwargs=True, always_call=True))
handles.append(of_optimizers.register_optimizer_step_post_hook(lambda optimizer, *_: said.append("step")))
class Doubles(torch.nn.Module):
    def forward(self, x, *, times=1):
        return x * times
net = torch.nn.Sequential(Doubles(), Doubles())
def steps():
    said.clear()
    weight = torch.nn.Parameter(torch.ones(2))
    net[0](torch.ones(2) * weight, times=3).sum().backward()
    net.weight = weight
    torch.optim.SGD([weight], lr=0.1).step()
    return list(said)
"""
SAID_BY_ALL = [
    *("forward_pre_hook", "forward_hook", {"times": 3}, "full_backward_pre_hook", "full_backward_hook"),
    *("parameter_registration_hook", "step"),
]


@pytest.mark.long(f"{IMPORTED}: what takes whose place is here")
def test_hooks_of_all_modules_and_optimizers_come_back_with_their_handles():
    check = f"""
assert steps() == {SAID_BY_ALL}, said
for handle in handles:
    handle.remove()
assert steps() == [], said
"""
    exec(OF_ALL_MODULES + check, {"__name__": "__main__"})
    assert carried_on(OF_ALL_MODULES, check) == []


@pytest.mark.long("PyTorch is imported by each process: what takes whose place is here")
def test_a_hook_that_is_given_after_a_restore_takes_no_others_place():
    before = (
        "import torch; net = torch.nn.Linear(1, 1); said = []; net.register_forward_hook(lambda *_: said.append(1));"
    )
    after = "net.register_forward_hook(lambda *_: said.append(2)); net(torch.ones(1)); assert said == [1, 2], said"
    assert carried(before, after) == []


def test_tensors_of_inference_mode_stay_tensors_of_it():
    with torch.inference_mode():
        base = torch.arange(4.0)
        names = {"base": base, "part": base[1:], "weight": torch.nn.Parameter(base), "turned": (base * 1j).conj()}
    names["ordinary"] = torch.ones(2)
    result = Roundtrip(names)
    assert {name: tensor.is_inference() for name, tensor in result.namespace.items()} == {
        name: tensor.is_inference() for name, tensor in names.items()
    }
    with torch.inference_mode():
        result["base"].fill_(7)
    assert result["part"].tolist() == [7, 7, 7]
    assert torch.equal(result["turned"], names["turned"])
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        result["base"] * torch.ones(4, requires_grad=True)


OTHER_TENSORS = """
import torch
said = []
def tell(gradient):
    said.append(1)
def used(leaf):
    leaf.register_hook(tell)
    (leaf * 2).to_dense().sum().backward()
    leaf.note = "mine"
    return leaf
class Marked(torch.Tensor):
    pass
class Weight(torch.nn.Parameter):
    pass
sparse = used(torch.eye(2).to_sparse().requires_grad_())
sparse_weight = used(torch.nn.Parameter(torch.eye(2).to_sparse()))
marked = used(torch.ones(2).as_subclass(Marked).requires_grad_())
weight = used(Weight(torch.ones(2)))
said.clear()
"""


@pytest.mark.parametrize("name", ["sparse", "sparse_weight", "marked", "weight"])
def test_other_tensors_are_leaves_with_their_gradients_and_hooks_again(name):
    names = cells(OTHER_TENSORS)
    result = of_user(names)
    assert not result.manifest.changed
    again = result[name]
    assert type(again).__name__ == type(names[name]).__name__
    assert (again.is_leaf, again.requires_grad, again.note) == (True, True, "mine")
    (again * 2).to_dense().sum().backward()
    (names[name] * 2).to_dense().sum().backward()
    assert torch.equal(again.grad.to_dense().detach(), names[name].grad.to_dense().detach())
    assert result["said"] == [1]


class Marked(torch.Tensor):
    pass


def test_tensors_of_classes_of_ones_own_share_their_storage_and_what_is_recorded_is_named():
    base = torch.zeros(4)
    leaf = base.as_subclass(Marked)[1:]
    result = Roundtrip({"base": base, "leaf": leaf, "recorded": leaf.clone().requires_grad_() * 2})
    result["base"].fill_(7)
    assert type(result["leaf"]) is Marked
    assert result["leaf"].tolist() == [7, 7, 7]
    assert {changed.name for changed in result.manifest.changed} == {"recorded"}
    assert not result["recorded"].requires_grad


class Guarded(Marked):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise ValueError("nobody asks for it")


class GuardedAndPickled(Guarded):
    def __reduce_ex__(self, protocol):
        return super().__reduce_ex__(protocol)


@pytest.mark.filterwarnings("ignore:backward hook")
@pytest.mark.parametrize("kind", [Guarded, GuardedAndPickled])
def test_a_save_asks_no_class_of_tensors_what_to_do(kind):
    importlib.import_module("nls_jupyter.simulated_cupy")  # which looks at tensors, too
    with torch._C.DisableTorchFunctionSubclass():
        whole = torch.arange(4.0).as_subclass(kind)
        leaf, part = torch.ones(2).as_subclass(kind).requires_grad_(), whole[1:].as_subclass(kind)
        whole.note, array = "mine", whole.numpy()
    result = Roundtrip({"whole": whole, "leaf": leaf, "part": part, "array": array})
    assert not result.unsaved
    assert not result.report.missing
    assert not result.manifest.changed
    assert type(result["whole"]) is type(result["part"]) is type(result["leaf"]) is kind
    with torch._C.DisableTorchFunctionSubclass():
        result["whole"].fill_(7)
        assert result["part"].tolist() == ([7, 7, 7] if kind is Guarded else [1, 2, 3])
        assert (result["whole"].note, result["leaf"].requires_grad) == ("mine", True)
        assert result["leaf"].is_leaf is (kind is Guarded)


class Pickled(Marked):
    def __reduce_ex__(self, protocol):
        return super().__reduce_ex__(protocol)


@pytest.mark.filterwarnings("ignore:backward hook")
def test_what_a_class_of_tensors_with_a_way_of_its_own_may_leave_out_is_named():
    plain, hooked = (torch.ones(2).as_subclass(Pickled).requires_grad_() for _ in range(2))
    hooked.register_hook(lambda gradient: gradient)
    lazy = torch.nn.LazyLinear(3).weight
    result = Roundtrip({"plain": plain, "hooked": hooked, "lazy": lazy})
    assert not result.unsaved
    assert type(result["hooked"]) is Pickled
    assert {changed.name for changed in result.manifest.changed} == {"hooked"}


LOOP = """
import torch
from torch import nn
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
net[4].bias = nn.Parameter(net[4].bias.detach().clone())
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, 60)
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
loss_of = nn.CrossEntropyLoss()
losses = []
def epoch():
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_of(net(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
"""


def test_a_training_loop_goes_on_to_the_same_losses_whichever_cell_it_was_moved_behind():
    def trained(moves):
        names = cells(LOOP)
        for cell in range(8):
            if cell in moves:
                with contextlib.closing(Saver(interpreter=Interpreter())) as saver:
                    manifest = saver.save(user_names(names, {}), cell=None, function_globals=names)
                    assert not manifest.missing
                    torch.manual_seed(99)
                    names = {"__name__": "__main__"}
                    with contextlib.closing(Saver(interpreter=Interpreter())) as second:
                        assert not second.restore(saver.descriptors(), names).missing
            names["epoch"]()
        return names["losses"]

    expected = trained(())
    assert len(set(expected)) == len(expected) == 32
    for cell in range(8):
        assert trained({cell}) == expected
    assert trained(range(8)) == expected


def test_only_the_changed_parameters_of_a_model_are_written():
    net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024))
    with contextlib.closing(Saver()) as saver:
        saver.save({"net": net}, cell=None)
        saver.save({"net": net}, cell=None)
        assert saver._committed.blobs.written_bytes == 0
        with torch.no_grad():
            net[1].weight[0, 0] += 1
        saver.save({"net": net}, cell=None)
        assert saver._committed.blobs.written_bytes == 1 << 20


@pytest.mark.filterwarnings("ignore")  # of libraries that the compiler imports
def test_a_compiled_module_is_saved_without_its_code_and_compiled_again():
    net = torch.nn.Linear(2, 2)
    compiled = torch.compile(net, backend="eager")
    function = torch.compile(lambda x: x * 2, backend="eager")
    result = Roundtrip({"net": net, "compiled": compiled, "function": function})
    assert not result.unsaved
    assert type(result["compiled"]).__name__ == "OptimizedModule"
    assert result["compiled"]._orig_mod is result["net"]
    assert result["function"]._torchdynamo_orig_callable(3) == 6
    assert {changed.name for changed in result.manifest.changed} == {"compiled", "function"}


def test_a_storage_and_its_tensors_stay_together():
    tensor = torch.arange(4.0)
    result = Roundtrip({"storage": tensor.untyped_storage(), "tensor": tensor})
    result["tensor"].fill_(3)
    assert torch.tensor(result["storage"], dtype=torch.uint8).view(torch.float32).tolist() == [3] * 4


def test_gradients_and_tied_weights_that_come_about_between_saves_are_kept():
    net = torch.nn.Linear(2, 2)
    with contextlib.closing(Saver()) as saver:
        saver.save({"net": net, "weight": net.weight}, cell=None)
        net(torch.ones(1, 2)).sum().backward()
        other = torch.nn.Linear(2, 2)
        other.weight = net.weight
        saver.save({"net": net, "weight": net.weight, "other": other, "grad": net.weight.grad}, cell=None)
        namespace = {}
        restore(saver.descriptors(), namespace)
    assert namespace["other"].weight is namespace["net"].weight is namespace["weight"]
    assert namespace["weight"].grad is namespace["grad"]


def test_the_generator_of_all_is_nobody_s_copy():
    own = torch.Generator().manual_seed(7)
    result = Roundtrip({"all": torch.default_generator, "own": own})
    assert result["all"] is torch.default_generator
    assert result["own"].initial_seed() == 7
