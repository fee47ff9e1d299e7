"""A service of JupyterHub: the node's page for administrators, and for each user their own workloads. It only shows.

Run by the hub as `python -m nls_jupyter_server.hub`. What a user may read is the daemon's decision: it is asked as that
user.
"""
