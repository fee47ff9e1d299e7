"""Trees of points of SciPy show the array of points that they showed."""

from __future__ import annotations

import pytest

from saved_state_roundtrip import roundtrip

pytest.importorskip("scipy", reason="pip install scipy to check its trees")


@pytest.mark.parametrize("kind", ["cKDTree", "KDTree"])
@pytest.mark.parametrize("size", ["", ", boxsize=2.0"])
def test_a_tree_shares_its_points(kind, size):
    result = roundtrip(f"""
import numpy as np
from scipy.spatial import {kind}
points = np.random.default_rng(0).random((50, 2))
tree = {kind}(points{size})
data, order = tree.data, tree.indices
near = tree.query([[0.5, 0.5]], k=3)
shared = np.shares_memory(points, tree.data)
""")
    assert not result.unsaved
    assert not result.report.missing
    tree, np = result["tree"], result["np"]
    assert tree.data is result["data"]
    assert tree.indices is result["order"]
    assert np.shares_memory(result["points"], tree.data) is result["shared"] is True
    assert all((one == other).all() for one, other in zip(tree.query([[0.5, 0.5]], k=3), result["near"], strict=True))


def test_a_tree_has_its_attributes():
    result = roundtrip("""
from scipy.spatial import KDTree
class Named(KDTree):
    pass
tree, named = KDTree([[1.0, 2.0]]), Named([[3.0, 4.0]])
tree.known, named.known, root = named, tree, tree.tree
del root
""")
    assert not result.report.missing
    assert result["tree"].known.known is result["tree"]
    assert type(result["named"]) is result["Named"]
    assert result["named"].tree.children == 1
