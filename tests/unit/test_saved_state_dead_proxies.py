"""An object that raises when it is asked what it is costs nobody else their save."""

from __future__ import annotations

import weakref

from nls_jupyter.saved_state import MachineRoom, Saver


class Thing:
    pass


def test_a_proxy_whose_object_is_gone_is_named_and_the_rest_is_saved():
    gone = Thing()
    proxy = weakref.proxy(gone)
    holder = Thing()
    holder.proxy = proxy
    del gone
    saver = Saver(MachineRoom(None), None)
    try:
        for cell in ("[1]", "[2]"):
            manifest = saver.save({"holder": holder, "proxy": proxy, "x": 1}, cell=cell)
            assert [name.name for name in manifest.saved] == ["x"]
            assert {(lost.name, lost.reason.partition(":")[0]) for lost in manifest.missing} == {
                ("holder", "it cannot be pickled (ReferenceError"),
                ("proxy", "it cannot be pickled (ReferenceError"),
            }
    finally:
        saver.close()
