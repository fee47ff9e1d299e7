"""The workload file: who had a notebook open when, and what its cells did. Its format is in docs/simulate.md."""
