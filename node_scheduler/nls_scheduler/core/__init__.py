"""The pure core: what is known, what follows from it, what is ordered. No clock, no IO, no randomness, no logging."""
