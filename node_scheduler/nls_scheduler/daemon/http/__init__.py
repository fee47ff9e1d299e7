"""The daemon's interface over HTTP."""
