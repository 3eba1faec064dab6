"""Weak and strong augmentation of whole batches on uint8 tensors: flip-and-shift, RandAugment, CTAugment, cutout."""

from maxmatch.augment.contrastive import CONTRASTIVE, Contrastive, Photometry
from maxmatch.augment.crop import Boxes, ResizedCrop
from maxmatch.augment.ctaugment import CTA_PRESETS, CTAugment, Drawn, proximity
from maxmatch.augment.ops import OPS
from maxmatch.augment.policy import Cutout, Draw, Magnitude, Placement, RandAugment, Weak
from maxmatch.augment.presets import PRESETS, randaugment, strong_policy
from maxmatch.augment.views import Strong, Views

__all__ = [
    "CONTRASTIVE",
    "CTA_PRESETS",
    "OPS",
    "PRESETS",
    "Boxes",
    "CTAugment",
    "Contrastive",
    "Cutout",
    "Draw",
    "Drawn",
    "Magnitude",
    "Photometry",
    "Placement",
    "RandAugment",
    "ResizedCrop",
    "Strong",
    "Views",
    "Weak",
    "proximity",
    "randaugment",
    "strong_policy",
]
