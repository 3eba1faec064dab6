"""MaxMatch (Jiang et al., TPAMI 2022): learn from the strong view the model is most inconsistent on.

L = mean_i CE(f(weak(x_i)), y_i) + lambda mean_i 1[max p_i >= threshold] max_{j in [K]} CE(f(strong_j(u_i)), argmax p_i)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from maxmatch.methods.fixmatch import FixMatch
from maxmatch.methods.reduce import Reduction, Worst
from maxmatch.methods.views import Views


@dataclass(frozen=True)
class MaxMatch(FixMatch):
    """FixMatch, minimising the most inconsistent of K strong views: Algorithm 1 of the paper."""

    year: ClassVar[int] = 2022
    formula: ClassVar[str] = "mean_i 1[max p_i >= threshold] max_j CE(f(strong_j(u_i)), argmax p_i)"

    k: Views = 3
    over: Reduction = Worst()
