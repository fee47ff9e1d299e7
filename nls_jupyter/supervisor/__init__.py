"""The loop's thread in the notebook's kernel: looks after one GPU process, and answers to the node's daemon for it."""
