"""The application that every command is added to."""

from __future__ import annotations

import os

import typer

app = typer.Typer(
    name="maxmatch",
    help="Semi-supervised image classification with worst-case consistency: many pictures, few labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Begin with: maxmatch demo",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def speaks() -> bool:
    """Whether this process is the one that prints: torchrun starts several alike."""
    return os.environ.get("RANK", "0") == "0"
