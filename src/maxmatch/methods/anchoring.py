"""FixMatch with Augmentation Anchoring: what MaxMatch is compared with, the mean over the same K views."""

from __future__ import annotations

from dataclasses import dataclass

from maxmatch.methods.base import Views
from maxmatch.methods.fixmatch import FixMatch


@dataclass(frozen=True)
class FixMatchAnchoring(FixMatch):
    """FixMatch, minimising the mean over K strong views."""

    k: Views = 3
