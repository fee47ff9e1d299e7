"""Functions that `exec` has made in a dict go on with that dict, whoever else holds it."""

from __future__ import annotations

import builtins
import contextlib

import pytest

from left_out import thinned
from nls_jupyter import saved_state
from saved_state_roundtrip import cells, check_in_a_new_process, of_user, restore, roundtrip, taken

_RATES = """
rates = {}
exec('''
rate, count = 3, 0
def price(x): return rate * x
def bump():
    global count
    count += 1
    return count
def adder(n): return lambda x: x + n + rate
class Shop:
    def price(self): return rate
    def __hash__(self): return rate
    def __eq__(self, other): return type(other) is type(self)
class Corner(Shop): pass
add = adder(1)
shop = Corner()
''', rates)
price, bump, Corner, shop, add, adder = (rates[name] for name in ('price', 'bump', 'Corner', 'shop', 'add', 'adder'))
"""
_CHECK = """
rates['rate'] = 100
assert (price(1), Corner().price(), shop.price(), add(1), adder(2)(1)) == (100, 100, 100, 102, 103)
assert (bump(), rates['count']) == (1, 1)
assert price.__globals__ is bump.__globals__ is add.__globals__ is Corner.price.__globals__ is rates
assert rates['price'] is price and rates['shop'] is shop and type(shop) is Corner is rates['Corner']
assert rates['__builtins__'] is vars(__import__('builtins')) and price.__builtins__ is rates['__builtins__']
"""


def test_they_share_it_with_each_other_and_with_its_name():
    check_in_a_new_process(_RATES, _CHECK)


def test_they_share_it_without_a_name_for_it():
    check_in_a_new_process(f"{_RATES}del rates", "rates = price.__globals__" + _CHECK)


HELD = ("price", "Corner", "shop", "add", "rates", "[rates]")


@pytest.mark.parametrize(
    "holds", thinned((f"held = {held}" for held in HELD), 3, "functions with globals of their own")
)
def test_whatever_leads_to_it_first(holds):
    kept = f"{_RATES}{holds}\ndel rates, price, bump, Corner, shop, add, adder"
    names = ("price", "bump", "Corner", "shop", "add", "adder")
    found = {
        "held = price": "held.__globals__",
        "held = Corner": "held.price.__globals__",
        "held = shop": "held.price.__func__.__globals__",
        "held = add": "held.__globals__",
        "held = rates": "held",
        "held = [rates]": "held[0]",
    }[holds]
    again = "".join(f"\n{name} = rates['{name}']" for name in names)
    check_in_a_new_process(kept, f"rates = {found}{again}{_CHECK}")


def test_it_is_saved_once_and_without_python_s_builtins():
    one = roundtrip(f"{_RATES}rates['text'] = 'x' * 100_000")
    assert 100_000 < one.manifest.memory_bytes < 110_000
    assert not one.unsaved
    assert not one.manifest.changed
    bare = roundtrip("space = {}\nexec('x = 1', space)")
    assert bare["space"] == {"x": 1, "__builtins__": vars(builtins)}
    assert bare["space"]["__builtins__"] is vars(builtins)
    assert bare.manifest.memory_bytes < 1_000


def test_what_changes_in_it_is_saved():
    with contextlib.closing(saved_state.Saver()) as saver:
        before = cells(_RATES)
        saver.save(saved_state.user_names(before, {}), cell=None, function_globals=before)
        before["rates"]["rate"] = 7
        saver.save(saved_state.user_names(before, {}), cell=None, function_globals=before)
        before["bump"]()
        saver.save({"bump": before["bump"]}, cell=None, function_globals=before)
        after = {}
        restore(saver.descriptors(), after)
    assert after["bump"]() == 2
    assert after["bump"].__globals__["price"](1) == 7


def test_a_function_without_builtins_of_its_own_gets_none():
    one = roundtrip("import types\nadd = types.FunctionType(compile('y_ + 1', 'x', 'eval'), {'y_': 5})")
    assert one["add"]() == 6
    assert one["add"].__globals__ == {"y_": 5}


def test_one_that_may_do_little_may_do_no_more():
    one = roundtrip("space = {'__builtins__': {'len': len}}\nexec('def f(x): return open(x) if x else len(x)', space)")
    assert one["space"]["f"]("") == 0
    with pytest.raises(NameError):
        one["space"]["f"]("/dev/null")
    assert one["space"]["__builtins__"] == {"len": len}
    assert one["space"]["f"].__builtins__ is one["space"]["__builtins__"]


def test_what_of_it_cannot_be_made_again_takes_along_what_leads_there_and_nothing_else():
    source = _RATES + "class Once:\n  def __setstate__(self, state): raise OSError('gone')\nother = [1]\n"
    one = roundtrip(f"{source}once = Once(); once.x = 1; rates['once'] = once")
    lost = {missing.name: missing.reason for missing in one.report.missing}
    assert lost == dict.fromkeys(("rates", "price", "bump", "Corner", "shop", "add", "adder", "once"), "OSError: gone")
    assert one["other"] == [1]


def test_two_of_them_that_lead_to_each_other():
    source = (
        "one, two = {'n': 1}, {'n': 2}\n"
        "for space in (one, two): exec('def f(): return n, other[\"f\"].__globals__', space)\n"
        "one['other'], two['other'] = two, one\nf = one['f']; del one, two, space"
    )
    check = (
        "one = f.__globals__\ntwo = one['other']\nassert two['other'] is one\nassert f() == (1, two) and f()[1] is two"
    )
    check_in_a_new_process(source, f"{check}\nassert two['f']()[1] is one and two['f'].__globals__ is two")


def test_memory_that_it_shares_is_saved_once_and_shared_again():
    source = "import numpy as np\nspace = {'a': np.zeros(1 << 20)}\nexec('def total(): return a.sum()', space)\n"
    one = roundtrip(f"{source}total, part = space['total'], space['a'][:9]")
    one["part"][0] = 7
    assert one["total"]() == 7
    assert one["space"]["a"] is one["total"].__globals__["a"]
    assert one.manifest.memory_bytes < (9 << 20)


def test_members_of_sets_are_found_by_what_the_dict_says():
    check_in_a_new_process(
        f"{_RATES}rates['shops'] = {{Corner()}}\nfirst = Corner", "assert Corner() in rates['shops']"
    )


def test_where_it_cannot_be_saved_whole_functions_have_what_they_use_and_that_is_said():
    namespace = cells(_RATES)
    namespace["rates"]["lock"] = taken()
    one = of_user(namespace)
    assert one.unsaved == {"rates": "it holds a lock that is taken"}
    said = "functions come back with a copy of what they use of their globals, which cannot be saved whole"
    assert {(name.name, name.change) for name in one.manifest.changed} >= {("price", said), ("bump", said)}
    assert (one["price"](1), one["bump"](), one["shop"].price()) == (3, 1, 3)


def test_what_nobody_else_holds_is_not_missed_where_functions_have_what_they_use():
    namespace = cells("space = {}\nexec('rate = 3\\ndef price(x): return rate * x', space)\nprice = space['price']")
    namespace.pop("space")["lock"] = taken()
    one = of_user(namespace)
    assert not one.unsaved
    assert not one.manifest.changed
    assert one["price"](2) == 6


def test_what_is_said_of_a_part_is_said_of_a_name_that_leads_there():
    one = roundtrip(f"{_RATES}import threading, itertools\nrates['rest'] = iter({{1, 2}})")
    assert not one.unsaved
    assert len(one.manifest.changed) == 1


def test_functions_of_a_script_share_its_globals(tmp_path):
    (tmp_path / "script.py").write_text(
        "state = 0\ndef bump():\n  global state\n  state += 1\n  return state\ndef read(): return state\n"
    )
    setup = (
        f"import runpy\nran = runpy.run_path({str(tmp_path / 'script.py')!r})\nbump, read = ran['bump'], ran['read']"
    )
    check_in_a_new_process(setup, "bump(); assert (bump(), read()) == (2, 2)")
