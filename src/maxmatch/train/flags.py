"""Which settings have a flag of their own on the command line; all have `--set section.field=value`."""

from __future__ import annotations

FLAGS = {
    "method": ("method", "name"), "k": ("method", "k"), "over": ("method", "over"), "strategy": ("method", "strategy"),
    "steps": ("train", "steps"), "epochs": ("train", "epochs"),
    "seed": ("train", "seed"), "fold": ("train", "fold"), "device": ("train", "device"),
    "init": ("train", "init"), "labels": ("data", "label_file"), "strict": ("data", "strict"),
    "protocol": ("data", "protocol"),
}  # fmt: skip
