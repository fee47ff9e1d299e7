"""Processes of this machine: as /proc shows them, in cgroups, under a guardian, in the foreground."""
