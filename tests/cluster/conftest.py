"""Only on a cluster of `tools/one_node_cluster.py` (make cluster-test); skipped with the reason anywhere else."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from one_node_cluster import missing

from one_node import OneNode
from story import Stories

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from story import Story


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the cluster says, beside a failure: it is gone when somebody reads that."""
    report = yield
    node = getattr(item, "funcargs", {}).get("node")
    if report.failed and isinstance(node, OneNode):
        report.sections.append(("the cluster", node.seen()))
    return report


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    """The node with our images, a device plugin for two simulated GPUs, and the daemon of the overlay `kind`."""
    if "ONE_NODE_CLUSTER" not in os.environ:
        assets = os.environ.get("KUBEBUILDER_ASSETS")
        reason = missing(Path(assets) if assets else None)
        pytest.skip(reason or "a node is made by `make cluster-test` only")
    with OneNode(Path(os.environ["ONE_NODE_CLUSTER"]), tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture(scope="module")
def stories(node: OneNode) -> Iterator[Stories]:
    """Those of a module."""
    stories = Stories(node)
    yield stories
    stories.end()


@pytest.fixture
def story(request: pytest.FixtureRequest, stories: Stories) -> Story:
    """That of the test before, or a new one where a test has failed since."""
    return stories.next(request.session.testsfailed)
