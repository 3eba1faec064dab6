"""A sheet of weak and strong views with their names: what training will see, before it starts."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from maxmatch.augment.views import Views
from maxmatch.data.datasets import Images
from maxmatch.data.plan import Plan
from maxmatch.files import write_safely

TILE, GAP, LINE = 96, 6, 11
OURS = b"Software\0maxmatch"  # in a sheet's file, so that the next may take its place


def save_sheet(sheet: Image.Image, path: Path) -> None:
    """Write it as a picture of the kind that its name says, or ValueError; a PNG says who made it."""
    kind = Image.registered_extensions().get(path.suffix.lower(), "")
    if kind not in Image.SAVE:  # some kinds can only be read
        raise ValueError(f"{path}: no picture is written under such a name")
    key, value = OURS.decode().split("\0")
    signature = PngInfo()
    signature.add_text(key, value)
    content = io.BytesIO()
    sheet.save(content, kind, pnginfo=signature)  # other kinds have no place for it
    write_safely(path, content.getvalue())


def draw_sheet(images: Images, views: Views, k: int, count: int, seed: int) -> Image.Image:
    """A picture with a row for each of `count` images: itself, a weak view and k strong ones, named below."""
    plan, total = Plan(seed), len(images.y)
    chosen, sizes = images.take(plan.indices("preview", 0, min(count, total), total))
    size = images.shape[1:]
    u_weak = torch.from_numpy(plan.uniforms("preview/weak", 0, (len(chosen), views.weak_uniforms)))
    columns = [
        (chosen, [["as it is"]] * len(chosen)),
        (views.weak_views(chosen, u_weak[None], sizes)[0], [["weak"]] * len(chosen)),
    ]
    for view in range(k):
        u = torch.from_numpy(plan.uniforms(f"preview/strong/{view}", 0, (len(chosen), views.strong_uniforms)))
        draw = views.strong.sample(u[:, views.weak_uniforms :], size)
        columns.append(
            (views.strong_views(chosen, u[None], u_weak, sizes=sizes).images[0], views.strong.describe(draw))
        )
    lines = max(1, max(len(names) for _, column in columns for names in column))
    high, wide = TILE + lines * LINE + GAP, TILE + GAP
    sheet = Image.new("RGB", (GAP + wide * len(columns), GAP + high * len(chosen)), "white")
    pen = ImageDraw.Draw(sheet)
    for x, (pictures, names) in enumerate(columns):
        for y, picture in enumerate(pictures):
            left, top = GAP + x * wide, GAP + y * high
            sheet.paste(_tile(picture), (left, top))
            pen.multiline_text((left, top + TILE), "\n".join(names[y]), fill="black", font_size=LINE - 2, spacing=1)
    return sheet


def _tile(picture: Tensor) -> Image.Image:
    pixels = np.ascontiguousarray(picture.expand(3, -1, -1).permute(1, 2, 0).numpy())
    return Image.fromarray(pixels).resize((TILE, TILE), Image.Resampling.NEAREST)
