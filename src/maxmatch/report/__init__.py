"""A run folder becomes one self-contained HTML page. `page.py` makes it."""
