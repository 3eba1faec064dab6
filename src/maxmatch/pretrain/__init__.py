"""BEFORE there are labels: an encoder learned from the pictures alone, to start a training from."""
