"""Fixtures of the Kubernetes driver's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api_servers import REAL, RESTARTABLE, SERVERS
from cluster_bench import cluster, shared_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["cluster", "shared_cluster"]


@pytest.fixture(scope="session", autouse=True)
def api_servers() -> Iterator[None]:
    """A real API server, where one is asked for, lives as long as the run."""
    with SERVERS:
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What only the API server that stands in can do is left to it."""
    if REAL and item.get_closest_marker("faults") is not None:
        pytest.skip("this needs faults on demand, which no real API server has")
    if not RESTARTABLE and item.get_closest_marker("restarts") is not None:
        pytest.skip("this restarts the API server, which is not ours")
