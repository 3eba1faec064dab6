"""Where the figures of a run may go beside metrics.jsonl: `--log tensorboard`, `--log wandb`."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from maxmatch.errors import UsageError, UserError, said, unknown
from maxmatch.files import write_safely


class Logger(Protocol):
    """Something that takes figures beside metrics.jsonl."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def close(self) -> None: ...


def find_logger(name: str) -> Callable[[str], Logger]:
    """The logger that `--log` names, to be opened on a folder of that name in the run's."""
    if name not in LOGGERS:
        raise UsageError(unknown("logger", name, LOGGERS))
    try:
        return LOGGERS[name]()
    except ImportError:
        raise UsageError(f'--log {name}: type pip install "maxmatch[{name}]"') from None


def _tensorboard() -> Callable[[str], Logger]:
    """Event files: `tensorboard --logdir RUN`."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter


def _wandb() -> Callable[[str], Logger]:
    import wandb

    return lambda folder: WeightsAndBiases(wandb, Path(folder))


LOGGERS: dict[str, Callable[[], Callable[[str], Logger]]] = {"tensorboard": _tensorboard, "wandb": _wandb}


class WeightsAndBiases:
    """One run of wandb.ai for one run folder, by an identity that is kept there: who goes on here goes on there.

    Figures are drawn over `step`, a figure like the others: wandb's own count of steps refuses those that a run which
    was killed does a second time. Account, project and WANDB_MODE=offline are wandb's, by its own words.
    """

    def __init__(self, wandb: Any, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        known = folder / "id"
        if not known.exists():
            write_safely(known, secrets.token_hex(8).encode())
        run = folder.parent
        config = json.loads((run / "recipe.json").read_text())
        try:
            self._run = wandb.init(
                project="maxmatch",
                name=run.resolve().name,
                id=known.read_text(),
                resume="allow",
                dir=run,
                config=config,
            )
        except Exception as error:  # no account, no network: it has kinds of its own
            raise UserError(f"--log wandb: {said(error)}; type wandb login, or WANDB_MODE=offline before it") from None
        self._run.define_metric("*", step_metric="step")

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self._run.log({tag: scalar_value, "step": global_step})

    def close(self) -> None:
        self._run.finish()
