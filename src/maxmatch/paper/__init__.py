"""`maxmatch paper`: every figure and table of the paper: what to run, what was published, how to draw it."""
