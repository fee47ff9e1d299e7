"""Jupyter Server's side: the node's status for the browser, the user's orders for the daemon, and no orphans."""
