"""A picture in a slot of its own."""

from __future__ import annotations

import torch

from maxmatch.data.files import fill_slot


def read_slot(file, channels, side):
    """A file in a slot, and its height and width."""
    slot = torch.empty(channels, side, side, dtype=torch.uint8)
    return slot, fill_slot(file, slot.numpy())
