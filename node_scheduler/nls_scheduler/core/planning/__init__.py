"""The plan: where each workload should be, and why. Made from scratch after every event."""
