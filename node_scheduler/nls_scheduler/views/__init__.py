"""What people, clients and Prometheus see of the node. Decides nothing."""
