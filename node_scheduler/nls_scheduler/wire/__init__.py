"""What the daemon and its clients say to each other, and where they meet."""
