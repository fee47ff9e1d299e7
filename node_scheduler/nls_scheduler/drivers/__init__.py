"""Drivers: how the daemon sees this node's Gpus (NVML, or the simulation)."""
