"""Where processes should be: guarantees, turns for burst, the spread, and what goes on from before."""
