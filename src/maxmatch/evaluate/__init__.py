"""How good it is: error rates, robust risk over the K views, and a trained classifier to use."""
