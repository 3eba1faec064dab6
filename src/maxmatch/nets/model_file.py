"""model.safetensors: exactly the net's state_dict, with what it takes to rebuild the net as JSON metadata.

Nothing is ever unpickled. safetensors refuses channels-last tensors, so weights are saved contiguous.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from maxmatch.errors import UsageError, UserError
from maxmatch.files import write_safely
from maxmatch.nets import make_net
from maxmatch.nets.batchnorm import set_mode
from maxmatch.nets.preprocess import Preprocessing

FORMAT_VERSION = 1


@dataclass(frozen=True)
class ModelInfo:
    """What a weight file says of itself."""

    classes: tuple[str, ...]
    preprocessing: Preprocessing
    net: Mapping[str, Any]  # the arguments of make_net: name, dropout, momentum; after a pretraining projection


def save_model(path: Path, net: nn.Module, info: ModelInfo, beside: Mapping[str, str] | None = None) -> None:
    """Write the weights of `net` and how to rebuild it; `beside` is metadata of the caller's own."""
    metadata = {
        **(beside or {}),
        "format_version": json.dumps(FORMAT_VERSION),
        "classes": json.dumps(info.classes),
        "preprocessing": json.dumps(asdict(info.preprocessing)),
        "net": json.dumps(dict(info.net)),
    }
    write_safely(path, _in_order(save(plain_tensors(net.state_dict()), metadata)))


def load_model(path: Path) -> tuple[nn.Module, ModelInfo]:
    """Rebuild the net of a weight file, in eval mode on the CPU."""
    tensors, metadata = read_tensors(path)
    info = _info(path, metadata)
    net = _undrawn(info, tensors) or _drawn(info)
    dtype = next((tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()), torch.float32)
    try:
        net.to(dtype).load_state_dict(tensors)
    except RuntimeError:
        raise UserError(
            f"{path}: its weights don't fit {info.net['name']} as it is now; restore the net as it was trained"
        ) from None
    set_mode(net, "eval")
    return net, info


def _undrawn(info: ModelInfo, tensors: Mapping[str, Tensor]) -> nn.Module | None:
    """The net with nothing computed or drawn: by torch's one generator another thread may be training.

    None where it has more than its weights, a table that is not saved for example, or can't be made without numbers.
    """
    try:
        with torch.device("meta"):
            net = _made(info)
        net.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    except Exception:  # in whatever way; the other one will tell
        return None
    return None if any(tensor.is_meta for tensor in (*net.parameters(), *net.buffers())) else net


def _drawn(info: ModelInfo) -> nn.Module:
    with torch.random.fork_rng([]):  # the weights it draws are replaced; the caller's generator stays where it was
        return _made(info)


def _made(info: ModelInfo) -> nn.Module:
    channels, height, width = info.preprocessing.shape
    return make_net(classes=len(info.classes), channels=channels, size=(height, width), **info.net)


def read_info(path: Path) -> ModelInfo:
    """What a weight file says of itself."""
    return _info(path, read_tensors(path)[1])


def _in_order(content: bytes) -> bytes:
    """A safetensors file with its metadata sorted: safetensors has another order every time, and equal files differ."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    length = -(-len(text) // 8) * 8
    return length.to_bytes(8, "little") + text.ljust(length) + content[8 + size :]


def _info(path: Path, metadata: Mapping[str, str]) -> ModelInfo:
    version = json.loads(metadata.get("format_version", "0"))
    if "progress" in metadata:
        raise UsageError(f"{path} is a checkpoint: give the folder of its run, {path.parent.parent}")
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path} has format {version}, this version reads {FORMAT_VERSION}: train it again with maxmatch train"
        )
    return ModelInfo(
        tuple(json.loads(metadata["classes"])),
        Preprocessing(**json.loads(metadata["preprocessing"])),
        json.loads(metadata["net"]),
    )


def plain_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Detached, contiguous, on the CPU, each with memory of its own: as safetensors wants them."""
    made: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        place = plain.untyped_storage().data_ptr()
        made[name] = plain.clone() if place in places else plain  # one weight under two names
        places.add(place)
    return made


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a safetensors file and its metadata, or one line that says why not."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            return {name: torch.as_tensor(file.get_tensor(name)) for name in file.keys()}, metadata  # noqa: SIM118
    except FileNotFoundError:
        if (path.parent / "recipe.json").exists():
            again = f"maxmatch train --resume --out {shlex.quote(str(path.parent))}"
            hint = f"the run has not finished; wait for it, or type {again}"
        else:
            hint = "give the folder of a run, as maxmatch train makes it, or the file that save wrote"
        raise UsageError(f"{path} is missing: {hint}") from None
    except (SafetensorError, OSError, ValueError) as error:
        again = f"maxmatch train --resume --out {shlex.quote(str(path.parent))}"
        left = path.name == "model.safetensors" and any((path.parent / "checkpoint").glob("*.safetensors"))
        remedy = f"delete it and type {again}, which writes it anew" if left else "train again, or restore the file"
        raise UserError(f"{path} is damaged ({error}): {remedy}") from None
