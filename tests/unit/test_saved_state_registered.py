"""What cells register in libraries is known to these in the next process, too."""

from __future__ import annotations

import functools
import sys
import types

import pytest

from nls_jupyter.saved_state.dispatched_functions import DispatchedFunctions
from saved_state_processes import carried, carried_on

IN_PANDAS = """
import sys, types
import pandas as pd
from pandas.api import extensions
class Counted:
    def __init__(self, table): self.table = table
    def rows(self): return len(self.table)
extensions.register_dataframe_accessor("counted")(Counted)
extensions.register_series_accessor("counted")(Counted)
extensions.register_index_accessor("by_function")(lambda index: index[::-1])
@extensions.register_extension_dtype
class Whole(extensions.ExtensionDtype):
    name, type = "whole", int
    @classmethod
    def construct_array_type(cls): return Wholes
class Wholes(extensions.ExtensionArray):
    def __init__(self, numbers): self.numbers = numbers
    def __len__(self): return len(self.numbers)
    def __getitem__(self, place): return self.numbers[place]
    def copy(self): return Wholes([*self.numbers])
    dtype = property(lambda self: Whole())
frame = pd.DataFrame({"a": [1, 2]})
wholes = pd.Series(Wholes([3, 4]))
del extensions
"""


@pytest.mark.long("what is imported by processes of their own")
def test_accessors_and_data_types_that_cells_register_are_known_in_the_next_process_but_one():
    pytest.importorskip("pandas")
    after = """
assert (frame.counted.rows(), frame["a"].counted.rows(), frame.index.by_function.tolist()) == (2, 2, [1, 0])
assert pd.DataFrame.counted is Counted and type(frame.counted) is Counted
assert type(pd.api.types.pandas_dtype("whole")) is Whole is type(wholes.dtype) and wholes.iloc[1] == 4
assert {"counted"} < {*dir(frame)} and not hasattr(frame.index, "counted")
"""
    assert carried_on(IN_PANDAS, after) == []


ACCESSORS = {
    "xarray": (
        (
            "import xarray as xr\n"
            "@xr.register_dataarray_accessor('doubled')\n"
            "class Doubled:\n"
            "    def __init__(self, array): self.array = array\n"
            "    def all(self): return self.array * 2\n"
            "xr.register_dataset_accessor('size_of')(len)\n"
            "array = xr.DataArray([1, 2]); kept = Doubled; del Doubled"
        ),
        (
            "assert array.doubled.all().values.tolist() == [2, 4] and xr.DataArray.doubled is kept\n"
            "assert xr.Dataset({'a': array}).size_of == 1 and not hasattr(xr.Dataset, 'doubled')"
        ),
    ),
    "polars": (
        (
            "import polars as pl\n"
            "@pl.api.register_expr_namespace('doubled')\n"
            "class Doubled:\n"
            "    def __init__(self, expression): self.expression = expression\n"
            "    def all(self): return self.expression * 2\n"
            "pl.api.register_dataframe_namespace('doubled')(Doubled); kept = Doubled; del Doubled"
        ),
        (
            "table = pl.DataFrame({'a': [1, 2]}).select(pl.col('a').doubled.all())\n"
            "assert table['a'].to_list() == [2, 4] and type(table.doubled) is kept and pl.Expr.doubled is kept"
        ),
    ),
}


@pytest.mark.parametrize("library", ACCESSORS)
def test_accessors_of_other_libraries_are_known_in_the_next_process_but_one(library):
    pytest.importorskip(library, reason=f"pip install {library} to check its accessors with it")
    assert carried_on(*ACCESSORS[library]) == []


IN_MATPLOTLIB = """
import matplotlib; matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib import axes, projections, scale, units
class Bare(axes.Axes):
    name = "bare"
class Doubled(scale.LinearScale):
    name = "doubled"
    def __init__(self): pass
class Metres:
    def __init__(self, number): self.number = number
class ToNumbers(units.ConversionInterface):
    @staticmethod
    def convert(value, unit, axis): return [one.number for one in value] if hasattr(value, "__len__") else value.number
projections.register_projection(Bare)
scale.register_scale(Doubled)
units.registry[Metres] = ToNumbers()
del Bare, Doubled, ToNumbers
"""


@pytest.mark.long("what is imported by processes of their own")
def test_projections_scales_and_units_that_cells_register_are_known_in_the_next_process_but_one():
    pytest.importorskip("matplotlib")
    after = """
bare = plt.figure().add_subplot(projection="bare")
assert type(bare).__name__ == "Bare" and bare.name == "bare"
bare.set_xscale("doubled")
assert type(bare.xaxis._scale).__name__ == "Doubled"
[line] = bare.plot([Metres(1), Metres(2)])
assert line.get_ydata(orig=False).tolist() == [1, 2]
"""
    assert carried_on(IN_MATPLOTLIB, after) == []


@pytest.mark.long("imports many libraries")
def test_what_a_library_registers_comes_with_its_import(tmp_path):
    pytest.importorskip("pandas")
    (tmp_path / "registers_an_accessor.py").write_text(
        "import pandas\n"
        "@pandas.api.extensions.register_dataframe_accessor('of_a_module')\n"
        "class Accessor:\n"
        "    def __init__(self, frame): self.frame = frame\n"
    )
    path = f"import sys; sys.path.append({str(tmp_path)!r})\n"
    after = "import pandas, registers_an_accessor as mine\nassert pandas.DataFrame.of_a_module is mine.Accessor"
    assert carried_on(path + "import registers_an_accessor; del registers_an_accessor", after) == []


def test_classes_of_cells_that_are_registered_with_abstract_ones_are_their_subclasses():
    before = (
        "import abc, gc, weakref\nfrom collections.abc import Sequence, Sized\n"
        "class Rows:\n"
        "    def __len__(self): return 0\n"
        "Sequence.register(Rows); old = weakref.ref(Rows)\n#%%\n"
        "@Sequence.register\n"
        "class Rows:\n"
        "    def __len__(self): return 1\n"
        "class Shape(abc.ABC): pass\n"
        "Shape.register(Rows)\nrows = Rows()\n"
    )
    after = (
        "assert isinstance(rows, Sequence) and issubclass(Rows, Sequence) and isinstance(rows, Shape)\n"
        "assert not isinstance(object(), Sequence) and Sequence.register(list) is list\n"
        "gc.collect(); assert old() is None\n"
    )
    assert carried_on(before, after) == []


def test_how_types_are_written_to_and_read_from_a_database_is_known_in_the_next_process_but_one():
    before = """
import collections, sqlite3
class Point:
    def __init__(self, x): self.x = x
sqlite3.register_adapter(Point, lambda point: point.x)
sqlite3.register_adapter(collections.OrderedDict, len)
sqlite3.register_converter("point", lambda text: Point(int(text)))
"""
    after = """
with sqlite3.connect(":memory:", detect_types=sqlite3.PARSE_DECLTYPES) as database:
    database.execute("CREATE TABLE points (at point, size integer)")
    database.execute("INSERT INTO points VALUES (?, ?)", (Point(7), collections.OrderedDict(a=1)))
    ((point, size),) = database.execute("SELECT * FROM points")
assert (type(point), point.x, size) == (Point, 7, 1)
"""
    assert carried_on(before, after) == []


def test_implementations_that_cells_give_to_functions_of_libraries_come_back(tmp_path):
    (tmp_path / "dispatches.py").write_text(
        "import functools\n"
        "@functools.singledispatch\n"
        "def show(thing): return 'any'\n"
        "show.register(float)(lambda thing: 'float')\n"
        "class Shower:\n"
        "    @functools.singledispatchmethod\n"
        "    def show(self, thing): return 'any'\n"
    )
    before = f"""
import sys
sys.path.append({str(tmp_path)!r})
import dispatches
from dispatches import show
from IPython.utils.generics import complete_object
class Mine: pass
mark = "old"
@show.register
def _(thing: int | list): return mark
show.register(Mine, repr)
dispatches.Shower.show.register(list, lambda self, thing: mark)
@complete_object.register(Mine)
def complete(thing, known): return [mark]
del dispatches
"""
    after = """
import dispatches
mark = "new"
assert (show(1), show([]), show(1.0), show("")) == ("new", "new", "float", "any") and "Mine" in show(Mine())
assert (dispatches.Shower().show([]), dispatches.Shower().show(1)) == ("new", "any")
assert complete_object(Mine(), []) == ["new"] and complete_object.registry[Mine] is complete
"""
    assert carried_on(before, after) == []


def test_nothing_in_a_module_is_asked_whether_it_is_such_a_function(monkeypatch):
    class Deprecated:
        @property
        def __class__(self):
            raise FutureWarning("use the new one")

    module = types.ModuleType("deprecating")
    module.old = Deprecated()
    monkeypatch.setitem(sys.modules, "deprecating", module)
    monkeypatch.setattr(functools, "singledispatch", functools.singledispatch)  # which is followed until the test ends
    DispatchedFunctions().follow()


def test_functions_of_cells_with_their_implementations_stay_one_under_all_names():
    before = """
import functools
@functools.singledispatch
def show(thing): return "any"
@show.register
def of_number(thing: int): return show(mark)
@show.register(list)
def of_list(thing): return mark
class Shower:
    @functools.singledispatchmethod
    def show(self, thing): return "any"
    @show.register
    def _(self, thing: int | str): return mark
class Mine: pass
Shower.show.register(Mine, lambda self, thing: mark)
mark, other, held, make = [], show, [show, show.register], functools.singledispatch
"""
    after = """
mark = [1]
assert (show(1), show([]), show(""), Shower().show(""), Shower().show(Mine())) == ([1], [1], "any", [1], [1])
assert show is other is held[0] and held[1] is show.register and show.registry[list] is of_list
show.register(float, lambda thing: "float"); Shower.show.register(float, lambda self, thing: "float")
assert (other(1.0), Shower().show(1.0)) == ("float", "float") and make is functools.singledispatch
"""
    assert carried_on(before, after) == []


def test_what_cells_give_to_loaders_and_dumpers_of_yaml_is_known_in_the_next_process_but_one():
    pytest.importorskip("yaml")
    before = """
import collections, re, yaml
from yaml.representer import Representer
class Point:
    def __init__(self, x): self.x = x
class Sized(list): pass
class Tagged(yaml.YAMLObject):
    yaml_tag = "!Tagged"
class Mine(yaml.SafeLoader): pass
mark = "old"
yaml.add_representer(Point, lambda dumper, point: dumper.represent_scalar("!point", f"{point.x}", style='"'))
yaml.add_representer(Point, lambda dumper, point: dumper.represent_int(point.x), Dumper=yaml.SafeDumper)
yaml.add_multi_representer(Sized, lambda dumper, sized: dumper.represent_int(len(sized)))
yaml.add_representer(collections.defaultdict, Representer.represent_dict)
yaml.add_constructor("!point", lambda loader, node: Point(mark), Loader=yaml.SafeLoader)
yaml.SafeLoader.add_multi_constructor("!of/", lambda loader, suffix, node: suffix)
yaml.add_implicit_resolver("!point", re.compile("<.*>$"), ["<"], Loader=yaml.SafeLoader)
Mine.add_constructor("!env", lambda loader, node: mark)
"""
    after = """
mark = "new"
assert yaml.dump([Point(1), Sized([1]), collections.defaultdict(int, a=1)]) == '- !point "1"\\n- 1\\n- a: 1\\n'
assert yaml.safe_dump([Point(1)]) == "- 1\\n"
one, other = yaml.safe_load("[<1>, !of/a b]")
assert type(one) is Point and (one.x, other) == ("new", "a") and yaml.safe_load("<") == "<"
tagged = yaml.full_load("!Tagged {a: 1}")
assert type(tagged) is Tagged and yaml.dump(tagged).startswith("!Tagged")
assert yaml.load("!env 1", Mine) == "new"
"""
    assert carried_on(before, after) == []


def test_divergences_and_trees_that_cells_register_with_pytorch_are_known_in_the_next_process_but_one():
    pytest.importorskip("torch")
    before = """
import dataclasses, torch
from torch.distributions import Normal, kl_divergence, register_kl
from torch.utils._pytree import register_dataclass, register_pytree_node
class Mine(Normal): pass
@register_kl(Mine, Normal)
def kl(p, q): return mark
class Pair:
    def __init__(self, one, other): self.one, self.other = one, other
register_pytree_node(Pair, lambda pair: ([pair.one, pair.other], mark), lambda parts, _: Pair(*parts))
@dataclasses.dataclass
class Held: x: int
register_dataclass(Held)
mark = "old"
"""
    after = """
mark = "new"
assert kl_divergence(Mine(0.0, 1.0), Normal(0.0, 1.0)) == "new"
leaves, tree = torch.utils._pytree.tree_flatten([Pair(1, Held(2))])
assert leaves == [1, 2] and torch.utils._pytree.tree_unflatten([3, 4], tree)[0].other.x == 4
"""
    assert carried_on(before, after) == []


def test_operators_that_cells_define_with_pytorch_come_back_with_all_that_was_registered_for_them():
    pytest.importorskip("torch")
    before = """
import torch
from torch import Tensor
@torch.library.custom_op("mine::scaled", mutates_args=())
def scaled(x: Tensor) -> Tensor: return x * factor
other = scaled
@scaled.register_fake
def _(x): return torch.empty_like(x)
def keep(ctx, inputs, output): ctx.save_for_backward(*inputs)
def back(ctx, grad): return ctx.saved_tensors[0] * factor
scaled.register_autograd(back, setup_context=keep)
@scaled.register_vmap
def _(info, dims, x): return -scaled(x), dims[0]
scaled.register_autocast("cpu", torch.bfloat16)
class Two(Tensor): pass
@scaled.register_torch_dispatch(Two)
def _(mode, func, types, args, kwargs): return "dispatched"
@torch.library.custom_op("mine::filled", mutates_args={"x"}, device_types=["cpu", "meta"])
def filled(x: Tensor) -> None: x.fill_(factor)
@torch.library.custom_op("mine::chosen", mutates_args=(), schema="(Tensor a, int? b=None) -> Tensor")
def chosen(a, b=None): return a + factor
@chosen.register_kernel("cpu")
def on_cpu(a, b=None): return a.clone()
def recursive():
    @torch.library.custom_op("mine::down", mutates_args=())
    def down(x: Tensor, left: int) -> Tensor: return down(x, left - 1) if left else x.clone()
    return down
down, packet = recursive(), torch.ops.mine.scaled
ops, aten, add, of_tensors = torch.ops, torch.ops.aten, torch.ops.aten.add, torch.ops.aten.add.Tensor
model, factor = torch.nn.Linear(2, 2), 2
"""
    after = """
x, factor = torch.ones(2, requires_grad=True), 3
assert other is scaled and packet is torch.ops.mine.scaled and packet(x).tolist() == scaled(x).tolist() == [3, 3]
scaled(x).sum().backward(); assert x.grad.tolist() == [3, 3]
assert torch.vmap(scaled)(torch.ones(2, 2)).tolist() == [[-3, -3], [-3, -3]]
with torch.autocast("cpu"): assert scaled(x).dtype is torch.bfloat16
assert scaled(torch.empty(2, device="meta")).shape == (2,)
filled(y := torch.ones(2)); assert y.tolist() == [3, 3]
assert chosen(y).tolist() == [3, 3]
with chosen.set_kernel_enabled("cpu", False): assert chosen(y).tolist() == [6, 6]
assert down(y, 3).tolist() == [3, 3] and down(y, 0) is not y
assert Two in scaled._torch_dispatch_fns
assert ops is torch.ops and aten is ops.aten and add is aten.add and of_tensors is add.Tensor
@torch.library.custom_op("mine::scaled", mutates_args=())
def again(x: Tensor) -> Tensor: return x * 5
assert torch.ops.mine.scaled(y).tolist() == [15, 15]
del again, scaled, other
"""
    assert carried(before, after, "torch") == []
