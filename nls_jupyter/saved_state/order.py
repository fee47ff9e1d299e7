"""The order in which components are saved and restored, and which of them share a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.arena import digest_of
from nls_jupyter.saved_state.encoder import rank
from nls_jupyter.saved_state.graph import Component
from nls_jupyter.saved_state.looks import is_atom
from nls_jupyter.saved_state.manifest import is_beside

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Components of fewer objects share one stream: a thousand small names are not a thousand streams.
_SMALL_NODES = 1000
# From here on names are neither modules nor functions nor classes (see `encoder.rank`).
_OTHERS_RANK = 2


def in_order(components: Sequence[Component], namespace: Mapping[str, Any]) -> list[Component]:
    """Components in the order in which they are restored; small ones without memory of their own together."""
    small: dict[bool, list[Component]] = {}
    sizes = dict.fromkeys((True, False), 0)
    found: list[tuple[int, Component]] = []
    for component in components:
        order = max(_rank(name, namespace[name]) for name in component.names)
        if is_large(component):
            found.append((order, component))
            continue
        is_code = order < _OTHERS_RANK
        small.setdefault(is_code, []).append(component)
        sizes[is_code] += max(component.nodes, len(component.names))  # a number has no nodes, but is written
        if sizes[is_code] > _SMALL_NODES:
            found.append((order, _together(small.pop(is_code))))
            sizes[is_code] = 0
    found += [(0 if is_code else _OTHERS_RANK, _together(bunch)) for is_code, bunch in small.items()]
    return [component for _, component in sorted(found, key=lambda pair: pair[0])]


def _rank(name: str, value: Any) -> int:
    """That of what lies in a place of its own beside the names: classes and functions of it come with the others."""
    if not is_beside(name) or type(value) is not tuple:
        return rank(value)
    return max((rank(part) for part in value if not is_atom(part)), default=0)


def is_large(component: Component) -> bool:
    """Whether a component has a stream of its own."""
    return component.digest is None or component.nodes > _SMALL_NODES or component.has_memory


def _together(components: list[Component]) -> Component:
    digests = [component.digest for component in components if component.digest is not None]
    return Component(
        names=[name for component in components for name in component.names],
        digest=digest_of(b"".join(digests)),
        nodes=sum(component.nodes for component in components),
        held=[thing for component in components for thing in component.held],
        has_memory=False,
    )
