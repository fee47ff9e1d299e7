"""What happens on a node today, as a workload: from a daemon's journal, or watched without managing anything."""
