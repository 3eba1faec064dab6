"""The command line. Nothing heavy is imported until a command needs it, so that help answers at once."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import nullcontext, suppress
from typing import Annotated, Any, NoReturn

import typer

from maxmatch import __version__
from maxmatch.cli import listing, measuring, pretraining, publishing, storing, training, using  # noqa: F401  commands
from maxmatch.cli.app import app, speaks
from maxmatch.cli.mistakes import as_setting, bad_value
from maxmatch.cores import wait_briefly
from maxmatch.errors import Interrupted, Unsaid, UserError, tell
from maxmatch.train.signals import handled

# As a newcomer meets them; --help follows.
ORDER = (
    "demo", "train", "pretrain", "preview", "evaluate", "report", "predict", "export", "data", "methods", "settings",
    "benchmark",
    "bench", "bound", "paper",
)  # fmt: skip
app.registered_commands.sort(key=lambda command: ORDER.index(command.callback.__name__ if command.callback else ""))

# typer carries click inside itself or beside itself, by its version; its own public error leads to either.
ClickUsageError: Any = typer.BadParameter.__mro__[1]
ClickException: Any = typer.BadParameter.__mro__[2]


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; every error is one line on standard error, and the exit code says which kind it was."""
    wait_briefly()
    sys.path.append(os.getcwd())  # a method of your own, --method my_module:Mine, is found beside you
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who began this process
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  for as long as the process lives
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal can't show is no reason to fail
    leave(run(sys.argv[1:] if arguments is None else arguments))


def leave(code: int) -> NoReturn:
    """End this process; one among several without Python's last rites.

    gloo's threads may still be letting go of a tensor, and abort a Python that has begun to end: one job in a hundred
    would fail with its work done.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def run(arguments: list[str]) -> int:
    """The exit code of a command: 0, 1 an error, 2 wrong words, 130 and 143 a signal."""
    try:
        with handled(_stop) if os.environ.get("WORLD_SIZE", "1") == "1" else nullcontext():
            outcome = typer.main.get_command(app).main(arguments, prog_name="maxmatch", standalone_mode=False)
    except Unsaid as error:
        return error.code
    except (UserError, Interrupted) as error:
        return _fail(str(error), error.code, error.from_rank)
    except ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            tell(error.format_message())
            return 2
        if setting := as_setting(error, arguments):
            return _fail(setting, error.exit_code)
        known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
        command = f"{arguments[0]} " if arguments and arguments[0] in known else ""
        hint = f" (type maxmatch {command}--help)" if isinstance(error, ClickUsageError) else ""
        return _fail((bad_value(error, arguments) or error.format_message()) + hint, error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped", 130)
    except OSError as error:
        return _fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), 1)
    return _fail("stopped", 130) if outcome == 130 else outcome if isinstance(outcome, int) else 0


def _stop(number: int) -> None:
    """A signal ends a command as Ctrl-C does, so that what it has half written is cleared away."""
    raise KeyboardInterrupt if number == signal.SIGINT else Interrupted("stopped", number)


def _fail(message: str, code: int, from_rank: bool = False) -> int:
    if from_rank or speaks():
        tell(f"maxmatch: {' '.join(message.split())}")
    return code


def _version(wanted: bool) -> None:
    if wanted:
        print(f"maxmatch {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Semi-supervised image classification with worst-case consistency: many pictures, few labels."""
