"""`nls demo`: the story of this project, played in real notebooks on a real Jupyter Server."""
