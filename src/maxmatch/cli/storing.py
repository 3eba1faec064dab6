"""The command that keeps the data sets."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maxmatch.cli.app import app
from maxmatch.cli.options import Labels, complete
from maxmatch.data import DATASETS
from maxmatch.errors import UsageError, UserError, tell, unknown

if TYPE_CHECKING:
    from rich.table import Table

ACTIONS = ("list", "fetch", "verify", "remove", "shard")


@app.command()
def data(
    action: Annotated[
        str,
        typer.Argument(help="list, fetch, verify, remove or shard.", autocompletion=complete(lambda: list(ACTIONS))),
    ] = "list",
    name: Annotated[
        str | None,
        typer.Argument(
            help="A data set; for shard a folder of pictures.",
            show_default=False,
            autocompletion=complete(lambda: list(DATASETS)),
        ),
    ] = None,
    out: Annotated[Path | None, typer.Argument(help="For shard: a new folder.", show_default=False)] = None,
    labels: Labels = None,
    size: Annotated[int, typer.Option("--size", help="For shard: MiB of a shard, about.", min=1)] = 512,
) -> None:
    """List the data sets, where they are and how big; fetch, verify or remove one: maxmatch data fetch cifar10

    maxmatch data shard DIR OUT packs a folder of pictures into tar files with an index; maxmatch train OUT reads them.
    """
    if action not in ACTIONS:
        raise UsageError(unknown("action", action, ACTIONS))
    if action == "shard":
        _shard(name, out, labels, size)
        return
    if out is not None or labels is not None:
        raise UsageError(f"data {action}: a second folder and --labels are for maxmatch data shard DIR OUT")
    from maxmatch.data.sources import SOURCES

    if name is not None and name not in DATASETS:
        raise UsageError(unknown("data set", name, DATASETS))
    if name is not None and name not in SOURCES and action != "list":
        what = "comes with scikit-learn" if name == "digits" else "is a folder of your own pictures"
        raise UsageError(f"data {action} {name}: {name} {what}; choose from {', '.join(sorted(SOURCES))}")
    if action == "list":
        _list([name] if name else list(DATASETS))
    elif action == "verify":
        _verify(name)
    elif name is None:
        raise UsageError(f"data {action}: a data set is wanted; type maxmatch data {action} cifar10")
    elif action == "fetch":
        from maxmatch.data import store
        from maxmatch.data.fetch import fetch

        fetch(name)
        print(store.kept_at(name))
    else:
        from maxmatch.data import store

        print(f"{name}: {'removed' if store.remove(name) else 'was not there'}")


def _list(names: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from maxmatch.data import store
    from maxmatch.data.download import size_text
    from maxmatch.data.sources import SOURCES

    table = Table("data set", "training", "test", "size", "where")
    for name in names:
        if name not in SOURCES:
            _add_unkept(table, name)
            continue
        source, path = SOURCES[name], store.kept_at(name)
        size = size_text(path.stat().st_size) if path.exists() else "-"
        where = path.name if path.exists() else "not here"
        table.add_row(name, f"{source.train:,}", f"{source.test:,}", size, where)
    console = Console(emoji=False)
    console.print(table)
    console.print(f"folder: {store.root()}", soft_wrap=True, highlight=False)


def _add_unkept(table: Table, name: str) -> None:
    """A row for a data set that is not in the store."""
    from maxmatch.data import store
    from maxmatch.data.shards import is_sharded

    if name == "digits":
        table.add_row(name, "1,195", "602", "-", "in scikit-learn")
        return
    place = store.root() / name
    whole = (place / "train").is_dir() and (place / "val").is_dir()
    where = f"{name}/train" if whole else f"{name}, shards" if is_sharded(place) else "not here"
    table.add_row(name, "1,281,167", "50,000", "-", where)


def _shard(folder: str | None, out: Path | None, labels: Path | None, size: int) -> None:
    """Pack a folder of pictures; how far it has come is said on standard error."""
    if folder is None or out is None:
        raise UsageError("data shard: two folders are wanted; type maxmatch data shard ./photos ./shards")
    from maxmatch.data.layout import read_layout
    from maxmatch.data.shards import Member, is_sharded, write_shards
    from maxmatch.progress import Bar

    root = Path(folder)
    if is_sharded(root):
        raise UsageError(f"data shard {root}: it holds shards already")
    if out.resolve().is_relative_to(root.resolve()):
        raise UsageError(f"data shard {root} {out}: the shards can't lie within the pictures; give another folder")
    listing = read_layout(root, labels)
    for note in listing.notes:
        tell(f"warning: {note}")
    parts = ((listing.files, listing.labels, False), (listing.test_files, listing.test_labels, True))
    members = [
        Member(name, listing.classes[label] if label >= 0 else "", test, (root / name).stat().st_size)
        for names, numbers, test in parts
        for name, label in zip(names, numbers, strict=True)
    ]
    words = ["maxmatch", "data", "shard", str(root.absolute()), str(out.absolute()), "--size", str(size)]
    again = shlex.join([*words, *(["--labels", str(labels.absolute())] if labels else [])])
    with Bar("packing", len(members)) as bar:
        count = write_shards(root, out, members, size * 2**20, bar.advance, again)
    tell(f"{len(members):,} pictures in {count} shards; next: maxmatch train {shlex.quote(str(out))}")
    print(out)


def _verify(name: str | None) -> None:
    """Read all bytes of one data set or of all that are kept; an error if any differs."""
    from maxmatch.data import store
    from maxmatch.data.sources import SOURCES

    if name is not None and not store.kept_at(name).exists():
        raise UserError(f"{name} is not kept in {store.root()}: type maxmatch data fetch {name}")
    bad = []
    for each in [name] if name else [known for known in SOURCES if store.kept_at(known).exists()]:
        try:
            store.check(each, SOURCES[each].sha256)
            print(f"{each}: sound")
        except UserError as error:
            bad.append(error)
            print(f"{each}: damaged")
    if bad:
        raise UserError("; ".join(map(str, bad)))
