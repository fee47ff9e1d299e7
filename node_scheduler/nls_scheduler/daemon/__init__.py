"""The daemon: its loop around the core, and what it needs of the node and of a cluster."""
