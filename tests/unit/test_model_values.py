"""Frozen values that are changed: what was computed from their fields stays as long as those do, and no longer."""

from __future__ import annotations

import dataclasses

import pytest

from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.values import computed_from, computed_once, replace
from nls_scheduler.core.simulator import GIB, SimulatedNode

COMPUTED = {name: of.fields for name, of in vars(NodeState).items() if isinstance(of, computed_once)}


@dataclasses.dataclass(frozen=True)
class Box:
    width: int
    height: int

    @computed_from("width")
    def doubled(self) -> list[int]:
        return [2 * self.width]

    @computed_once
    def area(self) -> list[int]:
        return [self.width * self.height]


class Watched(NodeState):
    """A state that notes which of its fields are read."""

    def __getattribute__(self, name: str) -> object:
        if name in {field.name for field in dataclasses.fields(NodeState)}:
            object.__getattribute__(self, "__dict__").setdefault("read", set()).add(name)
        return object.__getattribute__(self, name)


def test_a_computed_value_is_kept_while_the_fields_that_it_is_from_are_the_same() -> None:
    box = Box(2, 3)
    doubled, area = box.doubled, box.area
    higher, wider = replace(box, height=4), replace(box, width=5)
    assert higher.doubled is doubled
    assert higher.area == [8] != area
    assert wider.doubled == [10]


@pytest.mark.parametrize("name", COMPUTED)
def test_a_node_state_computes_from_the_fields_that_it_says_and_from_no_other(name: str) -> None:
    node = SimulatedNode.of(2, 80 * GIB)
    book = node.submit(request_bytes=GIB, limit_bytes=80 * GIB)
    for event in (node.settle, lambda: node.start_cell(book), lambda: node.release(book), node.settle):
        event()
        fields = {field.name: getattr(node.state, field.name) for field in dataclasses.fields(NodeState)}
        state = Watched(**fields)
        state.__dict__["read"] = set()
        getattr(state, name)
        assert state.__dict__["read"] <= (COMPUTED[name] or set()), name
