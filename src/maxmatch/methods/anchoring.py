"""FixMatch with Augmentation Anchoring: what MaxMatch is compared with, the mean over the same K views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from maxmatch.methods.fixmatch import FixMatch
from maxmatch.methods.views import Views


@dataclass(frozen=True)
class FixMatchAnchoring(FixMatch):
    """FixMatch, minimising the mean over K strong views."""

    year: ClassVar[int] = 2020
    formula: ClassVar[str] = "mean_i 1[max p_i >= threshold] mean_j CE(f(strong_j(u_i)), argmax p_i)"

    k: Views = 3
