"""Weak and strong augmentation of whole batches: flip-and-shift, RandAugment and cutout on uint8 tensors."""

from maxmatch.augment.ops import OPS
from maxmatch.augment.policy import Cutout, Draw, Magnitude, Placement, RandAugment, Weak
from maxmatch.augment.presets import PRESETS, randaugment
from maxmatch.augment.views import Strong, Views

__all__ = [
    "OPS",
    "PRESETS",
    "Cutout",
    "Draw",
    "Magnitude",
    "Placement",
    "RandAugment",
    "Strong",
    "Views",
    "Weak",
    "randaugment",
]
