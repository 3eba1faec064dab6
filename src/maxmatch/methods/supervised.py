"""The baseline of the paper's tables: the labelled images alone, under strong augmentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from maxmatch.methods.base import Batch, Losses, Method, Needs, Run
from maxmatch.methods.functional import cross_entropy


@dataclass(frozen=True)
class Supervised(Method):
    """Cross-entropy on the labelled images, strongly augmented as in the paper, or weakly."""

    formula: ClassVar[str] = "mean_l CE(f(strong(x_l)), y_l)"

    augmentation: Literal["strong", "weak"] = "strong"

    terms: ClassVar[tuple[str, ...]] = ("supervised",)

    @property
    def needs(self) -> Needs:
        return Needs(x_strong=self.augmentation == "strong")

    def losses(self, run: Run, batch: Batch) -> Losses:
        x = batch.x_strong if self.augmentation == "strong" else batch.x
        assert x is not None  # `needs` asked for it
        (logits,) = run.net(x)
        return Losses({"supervised": cross_entropy(logits, batch.y).mean()})
