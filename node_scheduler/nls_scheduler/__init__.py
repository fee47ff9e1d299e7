"""The node's daemon: it gives GPUs to workloads, takes them back for their owners, and explains each decision."""

__version__ = "0.1.0"
