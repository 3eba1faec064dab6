"""The paper's theory as numbers: `bounds.py`, `rademacher.py`, `norms.py` and `moreau.py`, as printed and as corrected.

`layers.py` and `risks.py` read a net and its outputs as the theorems see them; `measure.py`, `table.py` and
`command.py` are `maxmatch bound RUN`.
"""
