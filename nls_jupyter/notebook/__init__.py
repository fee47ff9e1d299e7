"""The thread that runs the notebook's cells: what `%gpu` and `%%gpu` do there, and what a cell shows of it."""
