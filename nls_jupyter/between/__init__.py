"""What several rooms need and that needs none of them: first of all what the kernel and its GPU process share."""
