"""K losses per image become one: the worst case of the paper, and what it is compared with.

`over(per_view)` takes (K, B) losses and returns the (B,) value that is minimised and the (B,) number of the view that
won. Worst is the paper's max over j in [K]; Mean is augmentation anchoring; Best is the paper's "U-min" curve;
SoftWorst and WorstFraction lie between Mean and Worst. At K = 1 all five are the identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from maxmatch.errors import UsageError, unknown


class Reduced(NamedTuple):
    value: Tensor  # (B,) what is minimised
    winner: Tensor  # (B,) the view that decided it


@dataclass(frozen=True)
class Reduction:
    """How K losses become one. Spelled `worst`, `mean`, `best`, `soft:TAU`, `fraction:Q` wherever it is typed."""

    name: ClassVar[str]
    picks: ClassVar[bool] = True  # it is decided by some of the views, so only those need a gradient

    if TYPE_CHECKING:  # a field `over: Reduction` takes its spelling too, which Consistency reads

        def __get__(self, made: object, kind: type) -> Reduction: ...
        def __set__(self, made: object, value: Reduction | str) -> None: ...

    def __call__(self, per_view: Tensor) -> Reduced:
        """Reduce (K, B) losses to (B,)."""
        chosen = self.choose(per_view)
        return Reduced(per_view.gather(0, chosen).mean(0), chosen[0])

    def choose(self, per_view: Tensor) -> Tensor:
        """The views (J, B) that count, the deciding one first: of a reduction that `picks`, their mean is the value."""
        return per_view.argsort(dim=0, descending=True, stable=True)

    def spell(self) -> str:
        """The short name with its parameter, as `parse` reads it."""
        return ":".join([self.name, *(repr(getattr(self, f.name)) for f in fields(self))])

    @staticmethod
    def parse(value: Any, name: str = "over") -> Reduction:
        """Read a reduction from its spelling.

        >>> Reduction.parse("fraction:0.5")
        WorstFraction(q=0.5)
        """
        if isinstance(value, Reduction):
            return value
        word, _, parameter = str(value).partition(":")
        if word not in REDUCTIONS:
            raise UsageError(unknown(f"value for {name}", word, REDUCTIONS))
        cls = REDUCTIONS[word]
        if not parameter:
            return cls()
        if not fields(cls):
            raise UsageError(f"{name} = {value}: '{word}' takes no parameter; type {word}")
        try:
            return cls(float(parameter))  # type: ignore[call-arg]
        except ValueError:
            raise UsageError(f"{name} = {value}: a number is wanted after '{word}:'") from None


@dataclass(frozen=True)
class Worst(Reduction):
    """max over the K views: the paper's objective. The first of several equal views wins."""

    name: ClassVar[str] = "worst"

    def choose(self, per_view: Tensor) -> Tensor:
        return per_view.argmax(0, keepdim=True)


@dataclass(frozen=True)
class Best(Reduction):
    """min over the K views: the paper's "U-min" ablation."""

    name: ClassVar[str] = "best"

    def choose(self, per_view: Tensor) -> Tensor:
        return per_view.argmin(0, keepdim=True)


@dataclass(frozen=True)
class WorstFraction(Reduction):
    """Mean of the worst ceil(qK) views: q = 1 is Mean, q <= 1/K is Worst."""

    q: float = 0.5
    name: ClassVar[str] = "fraction"

    def __post_init__(self) -> None:
        if not 0 < self.q <= 1:
            raise UsageError(f"over = fraction:{self.q!r}: the fraction lies in (0, 1]; type fraction:0.5")

    def choose(self, per_view: Tensor) -> Tensor:
        count = max(1, math.ceil(self.q * len(per_view) - 1e-9))  # 0.28 of 25 is 7
        return super().choose(per_view)[:count]


@dataclass(frozen=True)
class Mean(Reduction):
    """Mean over the K views: augmentation anchoring. The most inconsistent view is reported as the winner."""

    name: ClassVar[str] = "mean"
    picks: ClassVar[bool] = False

    def __call__(self, per_view: Tensor) -> Reduced:
        return Reduced(per_view.mean(0), per_view.argmax(0))


@dataclass(frozen=True)
class SoftWorst(Reduction):
    """tau logsumexp(l / tau) - tau log K: Mean as tau grows, Worst as it goes to 0."""

    tau: float = 1.0
    name: ClassVar[str] = "soft"
    picks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.tau < math.inf:
            limit = "mean" if self.tau == math.inf else "worst"
            raise UsageError(
                f"over = soft:{self.tau:g}: the temperature is a number above 0; type soft:1, or {limit} for its limit"
            )

    def __call__(self, per_view: Tensor) -> Reduced:
        most = per_view.detach().amax(0)  # from there on no digits are lost, whatever the temperature
        value = most + self.tau * torch.log1p(torch.expm1((per_view - most) / self.tau).mean(0))
        return Reduced(value, per_view.argmax(0))


REDUCTIONS: dict[str, type[Reduction]] = {cls.name: cls for cls in (Worst, Mean, Best, SoftWorst, WorstFraction)}
