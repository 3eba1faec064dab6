"""The commands that list what there is."""

from __future__ import annotations

from typing import Annotated

import typer

from maxmatch.cli.app import app


@app.command()
def methods(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page docs/methods.md.")] = False,
) -> None:
    """List the methods, their years, options and defaults."""
    from rich.console import Console
    from rich.table import Table

    from maxmatch.methods.catalogue import entries, page

    if markdown:
        print(page(), end="")
        return
    table = Table("method", "year", "what it does", "options", show_lines=True)
    for entry in entries():
        options = ", ".join(f"{name}={value}" for name, value in entry.options.items())
        table.add_row(entry.name, str(entry.year or ""), entry.line, options)
    Console(emoji=False).print(table)
