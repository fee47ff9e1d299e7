"""Fixtures of the Kubernetes driver's tests."""

from __future__ import annotations

from cluster_bench import cluster, shared_cluster

__all__ = ["cluster", "shared_cluster"]
