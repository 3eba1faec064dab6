"""A plain convolutional net, the kind that the paper's Theorem 2 is about: `plain-conv`.

Convolutions and one linear layer in a row, ReLU between them, an average over places before the last: no BatchNorm, no
shortcut, no bias. It is there to be bounded (`maxmatch bound`); a Wide ResNet classifies better.
"""

from __future__ import annotations

from torch import Tensor, nn

WIDTHS = (32, 64, 64, 128, 128)
STRIDES = (1, 2, 1, 2, 1)


class PlainConv(nn.Module):
    """Five 3x3 convolutions, two of which halve the side, and a linear head."""

    def __init__(self, classes: int, channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inner = channels
        for width, stride in zip(WIDTHS, STRIDES, strict=True):
            layers += [nn.Conv2d(inner, width, 3, stride, 1, bias=False), nn.ReLU()]
            inner = width
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(inner, classes, bias=False)
        self.num_features = inner
        for module in self.layers:
            if isinstance(module, nn.Conv2d):
                # An orthogonal matrix at the middle of the kernel: operator norm 1, so that nu = 0, and a signal that
                # keeps its size without BatchNorm.
                nn.init.zeros_(module.weight)
                nn.init.orthogonal_(module.weight[:, :, 1, 1])
        nn.init.orthogonal_(self.head.weight)

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) to the last feature map (B, F, h, w)."""
        features: Tensor = self.layers(x)
        return features

    def forward_head(self, features: Tensor) -> Tensor:
        """Feature map to logits: the average over places and one linear layer."""
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))
