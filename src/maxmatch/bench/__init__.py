"""`maxmatch bench`: what a step costs here, part by part, and what the worst case adds to FixMatch."""
