"""What the paper proves, as functions to compute: bounds, norms of nets, the Moreau envelope and convergence."""
