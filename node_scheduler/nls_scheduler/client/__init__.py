"""The daemon's clients: requests, the stream of events, and a supervisor's link."""
