"""What room there is, who leaves first, and bounded searches for whom to put elsewhere."""
