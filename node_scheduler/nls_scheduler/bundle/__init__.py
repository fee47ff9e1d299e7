"""What `nls doctor --bundle` puts into one file for whoever is to look at a problem, without anybody's names."""
