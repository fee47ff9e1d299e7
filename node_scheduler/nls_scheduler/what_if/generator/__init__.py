"""A generator of notebook workloads, fitted to what others have published of theirs."""
