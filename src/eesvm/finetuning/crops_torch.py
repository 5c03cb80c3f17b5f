"""Windows as pixels, made on the GPU that trains on them.

In: images and batches of windows. Out: float32 pixels (n, 3, side, side) on the device: the same filter as
`descriptors.resampling`, written as two matrix products per image. A GPU that had to wait for the cores to warp windows
would be idle most of the time. Images stay on the device, as bytes, up to a limit.
Not here: colours and mirroring, which `finetuning.training` does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from eesvm import boxes as geometry
from eesvm.descriptors.cnn import with_context
from eesvm.finetuning.crops import CONTEXT, CropReader, ImageStore, pieces_by_image
from eesvm.finetuning.runtime import Runtime
from eesvm.finetuning.windows_sampler import WindowBatch
from eesvm.structures import ImageRecord

_TOGETHER = 32  # images whose weights are made together: few calls, and little memory


def make_reader(
    records: Sequence[ImageRecord], size: int, fill: tuple[float, float, float], runtime: Runtime
) -> CropReader | DeviceCrops:
    """Who warps windows: a GPU does it itself."""
    if runtime.is_gpu:
        return DeviceCrops(records, size, fill, runtime.device)
    return CropReader(records, size, fill, runtime.n_threads)


class DeviceCrops:
    """Pixels of windows, by a device; see `CropReader`."""

    def __init__(
        self, records: Sequence[ImageRecord], size: int, fill: tuple[float, float, float], device: torch.device
    ) -> None:
        self.size, self.device = size, device
        self.fill = torch.tensor(fill, dtype=torch.float32, device=device)[:, None, None]
        self.images = ImageStore(records, prepare=lambda image: rows_first(image, device))

    def read(self, batch: WindowBatch) -> torch.Tensor:
        """(n, 3, size, size) pixels of a batch."""
        pieces = pieces_by_image(batch)
        parts = []
        for start in range(0, len(pieces), _TOGETHER):
            some = pieces[start : start + _TOGETHER]
            images = [self.images[int(batch.image[rows[0]])] for rows in some]
            wide = [self._wide(batch.boxes[rows], image) for rows, image in zip(some, images, strict=True)]
            parts.append(warp(images, wide, self.size, self.fill))
        places = np.argsort(np.concatenate(pieces), kind="stable")
        return torch.cat(parts)[torch.from_numpy(places).to(self.device)]

    def close(self) -> None:
        """Nothing to end."""

    def _wide(self, boxes: NDArray[np.float64], image: torch.Tensor) -> NDArray[np.float64]:
        windows = geometry.clip(boxes, image.shape[2], image.shape[0])
        return with_context(windows, (self.size, self.size), CONTEXT)


def rows_first(image: NDArray[np.uint8], device: torch.device) -> torch.Tensor:
    """(h, 3, w) bytes on the device: a row of an image is then a row of a matrix."""
    return torch.from_numpy(np.ascontiguousarray(image.transpose(0, 2, 1))).to(device)


def warp(
    images: Sequence[torch.Tensor], boxes: Sequence[NDArray[np.float64]], size: int, fill: torch.Tensor
) -> torch.Tensor:
    """(n, 3, size, size): the parts of each image (h, 3, w) inside each of its boxes; `fill` (3, 1, 1) outside."""
    device = images[0].device
    counts = [len(table) for table in boxes]
    corners = torch.from_numpy(np.concatenate(boxes).astype(np.float32)).to(device)
    sides = torch.tensor([[i.shape[0], i.shape[2]] for i in images], dtype=torch.float32).repeat_interleave(
        torch.tensor(counts), dim=0
    )
    sides = sides.to(device)
    rows, is_row = _axis_weights(sides[:, 0], max(i.shape[0] for i in images), corners[:, 1], corners[:, 3], size)
    columns, is_column = _axis_weights(sides[:, 1], max(i.shape[2] for i in images), corners[:, 0], corners[:, 2], size)
    pixels = torch.empty((len(corners), size * 3, size), device=device)
    start = 0
    for image, n in zip(images, counts, strict=True):
        height, _, width = image.shape
        own = slice(start, start + n)
        mixed = rows[own, :, :height].reshape(n * size, height) @ image.reshape(height, 3 * width).float()
        torch.bmm(mixed.view(n, size * 3, width), columns[own, :, :width].transpose(1, 2), out=pixels[own])
        start += n
    is_inside = is_row[:, None, :, None] & is_column[:, None, None, :]
    return torch.where(is_inside, pixels.view(-1, size, 3, size).permute(0, 2, 1, 3), fill)


def _axis_weights(
    n_sources: torch.Tensor, most: int, start: torch.Tensor, stop: torch.Tensor, n_target: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, target, most) weights of a triangle around each target pixel, and (n, target) whether it lies inside."""
    scale = ((stop - start) / n_target)[:, None]
    support = scale.clamp(min=1.0)
    centres = start[:, None] + (torch.arange(n_target, device=start.device) + 0.5) * scale
    sources = torch.arange(most, device=start.device) + 0.5
    weights = (1 - (sources - centres[:, :, None]).abs() / support[:, :, None]).clamp(min=0.0)
    weights *= (sources < n_sources[:, None])[:, None, :]
    is_inside = (centres >= 0) & (centres < n_sources[:, None])
    return weights / weights.sum(dim=2, keepdim=True).clamp(min=1e-6), is_inside
