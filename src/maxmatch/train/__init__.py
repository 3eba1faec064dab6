"""WHEN: recipes, the one loop, its step, its checkpoints and its log."""
