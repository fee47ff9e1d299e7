"""What is known of the node, as frozen values, and the words for it: Gpus, workloads, events, commands, rules."""
