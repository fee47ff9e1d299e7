"""What an event changes in the state. Facts are recorded here; decisions are made in `planning`."""
