"""Health while training: what a step saw, summed on the device and read at each log.

mask_rate is the share of unlabelled images whose pseudo-label is confident enough to be used, or the mean weight where
a method weighs them; pseudo_label_accuracy the share of those that count at all that are right, where the truth is
known and was not shown; guess_error and guess_top5_error the percent of all such images, confident or not, whose
pseudo-label is wrong, or whose truth is not among its five most likely classes, which is the paper's error on
unlabelled data; unlabeled_loss and unlabeled_loss_min the paper's U and U-min (under `select` U comes from the training
pass and U-min from the scoring pass); view_wins how often each view decided; op_wins how often a view with that
operation decided, over how often it stood for choice (1 / K if it makes no difference).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from maxmatch.augment.ops import OPS
from maxmatch.methods.base import Losses, Seen
from maxmatch.train.distributed import Ranks


class Health:
    """Sums over the steps since the last `read`. They are tensors of fixed shape, saved in the checkpoint."""

    def __init__(
        self,
        terms: tuple[str, ...],
        views: int,
        device: torch.device,
        ranks: Ranks = Ranks(),  # noqa: B008  frozen
        classes: int = 0,
    ) -> None:
        self.terms, self._ranks, self._top5 = terms, ranks, classes > 5  # of five classes or fewer all are among five
        self.blind = False  # whether the method's losses tell nothing of what was seen

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64 if device.type != "mps" else torch.float32, device=device)

        self.sums = {
            "steps": zeros(),
            "terms": zeros(len(terms)),
            "losses": zeros(2),  # unlabeled_loss, unlabeled_loss_min
            "kept": zeros(),
            "known": zeros(2),  # kept images whose truth is known, and those of them that are right
            "guessed": zeros(3),  # images whose truth is known, and those of them guessed wrong: at all, among five
            "view_wins": zeros(max(views, 1)),
            "op_seen": zeros(len(OPS)),
            "op_wins": zeros(len(OPS)),
        }
        self.first_bad = torch.full((len(terms),), -1, dtype=torch.int64, device=device)
        self._ops = torch.arange(len(OPS), device=device)

    def guard(self, losses: Losses, step: Tensor) -> Tensor:
        """Note the first step at which a term was not finite; returns 1 where the update must be skipped, else 0."""
        bad = ~torch.stack([losses.terms[name].detach() for name in self.terms]).isfinite()
        self.first_bad.copy_(torch.where(bad & (self.first_bad < 0), step, self.first_bad))
        return bad.any().float()

    def agree(self) -> None:
        """Make the sums those of the whole batch, the mean over the ranks; once more changes nothing."""
        self._ranks.average(list(self.sums.values()))

    def tensors(self) -> dict[str, Tensor]:
        """All that changes, for the checkpoint and for a capture's warm-up to be undone."""
        return {**self.sums, "first_bad": self.first_bad}

    def failure(self) -> tuple[str, int] | None:
        """(term, step) of the first non-finite loss, if there was one. Waits for the device."""
        found = [(step, name) for name, step in zip(self.terms, self.first_bad.tolist(), strict=True) if step >= 0]
        return (min(found)[1], min(found)[0]) if found else None

    @torch.no_grad()
    def add(self, losses: Losses, op: Tensor, truth: Tensor) -> None:
        """Take in one step: its losses, the operations (K, B, N) of its views, the truth (B,), -1 where unknown."""
        self.sums["steps"] += 1
        self.sums["terms"] += torch.stack([losses.terms[name].detach() for name in self.terms])
        if losses.seen is not None:
            self._add_seen(losses.seen, op, truth)

    def _add_seen(self, seen: Seen, op: Tensor, truth: Tensor) -> None:
        keep = seen.keep.to(seen.per_view.dtype)
        best_case = (keep * seen.per_view.amin(0)).mean()
        self.sums["losses"] += torch.stack([seen.unlabeled_loss, best_case])
        self.sums["kept"] += keep.mean()
        label = seen.target if seen.target.ndim == 1 else seen.target.argmax(-1)
        known = (truth >= 0) & (seen.keep > 0)
        many = self._ranks.count  # counts are those of as many images as the whole batch has, since means are taken
        self.sums["known"] += many * torch.stack([known.sum(), (known & (label == truth)).sum()])
        if seen.guess is not None:
            self.sums["guessed"] += many * self._guessed(seen.guess, truth)
        views = torch.arange(len(op), device=op.device)
        kept = seen.keep > 0
        decided = (seen.winner == views[:, None]) & kept  # (K, B)
        self.sums["view_wins"][: len(op)] += many * decided.sum(1)
        used = (op[..., None] == self._ops).any(2)  # (K, B, ops): this view has this operation
        # Counted by a product, exact up to 2^24 views, which a GPU does at once; a sum over so few columns it does not.
        counted = torch.stack([kept.expand_as(decided), decided]).flatten(1).float() @ used.flatten(0, 1).float()
        self.sums["op_seen"] += many * counted[0]
        self.sums["op_wins"] += many * counted[1]

    def _guessed(self, p: Tensor, truth: Tensor) -> Tensor:
        """How many images with a truth there are, and how many of them p (B, C) has wrong, at all and among five."""
        known = truth >= 0
        wrong = p.argmax(-1) != truth
        missed = (p.topk(5).indices != truth[:, None]).all(1) if self._top5 else torch.zeros_like(wrong)
        return torch.stack([known.sum(), (known & wrong).sum(), (known & missed).sum()])

    def read(self) -> dict[str, Any]:
        """The figures of the steps since the last read, as plain numbers; the sums start again at zero."""
        self.agree()
        sums: dict[str, Any] = {name: value.tolist() for name, value in self.sums.items()}
        for value in self.sums.values():
            value.zero_()
        steps = max(sums["steps"], 1)
        figures: dict[str, Any] = {f"{n}_loss": v / steps for n, v in zip(self.terms, sums["terms"], strict=True)}
        if "unlabeled" not in self.terms or self.blind:
            return figures
        figures["unlabeled_term"] = figures["unlabeled_loss"]
        figures["unlabeled_loss"], figures["unlabeled_loss_min"] = (value / steps for value in sums["losses"])
        figures["mask_rate"] = sums["kept"] / steps
        figures["pseudo_label_accuracy"] = sums["known"][1] / sums["known"][0] if sums["known"][0] else None
        known, wrong, missed = sums["guessed"]
        figures["guess_error"] = 100 * wrong / known if known else None
        figures["guess_top5_error"] = 100 * missed / known if known and self._top5 else None
        total = sum(sums["view_wins"])
        figures["view_wins"] = [wins / total for wins in sums["view_wins"]] if total else None
        seen_won = zip(OPS, sums["op_seen"], sums["op_wins"], strict=True)
        figures["op_wins"] = {name: won / seen for name, seen, won in seen_won if seen}
        return figures
