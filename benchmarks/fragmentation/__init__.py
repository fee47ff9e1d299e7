"""Placing pods on the GPUs of a cluster, as published, and with moves inside each node: see `docs/fragmentation.md`."""
