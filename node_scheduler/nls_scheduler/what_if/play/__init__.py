"""The stage on which every policy plays the same workload, in virtual time, and the figures that come of it."""
