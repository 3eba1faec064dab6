"""`maxmatch benchmark`: methods x folds as ordinary runs, and their errors compared over the same folds."""
