"""The paper's theory as numbers, as printed and as corrected: what `maxmatch bound RUN` shows, and where SGD ends up.

`bounds.py`, `rademacher.py` and `norms.py` are the generalisation bounds, for which `layers.py` and `risks.py` read a
net and its outputs as the theorems see them; `moreau.py`, `stationarity.py` and `convergence.py` are Theorem 3.
"""
