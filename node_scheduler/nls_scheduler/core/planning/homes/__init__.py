"""Where requests are counted: who is admitted, whose turn it is, who gives way on paper."""
