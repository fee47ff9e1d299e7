"""`nls top`: the node live in a terminal. What is drawn and what a key does is pure; `app` has the loop."""
