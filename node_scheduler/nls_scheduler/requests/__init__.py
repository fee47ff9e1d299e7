"""What is written in a request or a configuration, turned into values, or refused with one sentence."""
