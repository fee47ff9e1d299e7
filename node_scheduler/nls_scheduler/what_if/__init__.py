"""What sharing would bring: workloads of notebooks, played under several policies in virtual time.

A room above `daemon` and `drivers`: it plays the core's `step`, reads journals, and watches a node. It manages nothing.
"""
