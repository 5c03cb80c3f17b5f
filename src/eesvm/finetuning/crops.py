"""Windows as pixels: what the network sees while it is fine-tuned.

In: images and batches of windows. Out: float32 RGB pixels (n, side, side, 3), warped exactly as `CropCNN` warps them
when the trained network describes windows. Several threads work on a batch, and the next one is made while the network
is busy with this one. Images stay decoded in memory up to a limit.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eesvm import boxes as geometry
from eesvm.descriptors.cnn import with_context
from eesvm.descriptors.resampling import resample
from eesvm.finetuning.windows_sampler import WindowBatch
from eesvm.structures import ImageRecord

Pixels = NDArray[np.float32]
T = TypeVar("T")

CONTEXT = 16.0  # pixels of the crop around the window: what `CropCNN` has unless told otherwise
_MEMORY_BYTES = 2 << 30  # of decoded images


class ImageStore:
    """Decoded images; those that were not asked for the longest time go when memory runs out.

    `prepare` makes of an image (height, width, 3) what is kept, and anything with `nbytes` will do.
    """

    def __init__(
        self,
        records: Sequence[ImageRecord],
        limit: int = _MEMORY_BYTES,
        prepare: Callable[[NDArray[np.uint8]], Any] | None = None,
    ) -> None:
        self.records, self.limit, self.prepare = records, limit, prepare
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __getitem__(self, number: int) -> Any:
        with self._lock:
            if number in self._kept:
                self._kept.move_to_end(number)
                return self._kept[number]
        image = self.records[number].read()
        made = image if self.prepare is None else self.prepare(image)
        with self._lock:
            if number not in self._kept:
                self._kept[number] = made
                self._bytes += made.nbytes
            while self._bytes > self.limit and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return made


class CropReader:
    """Pixels of windows, by the cores.

    Parameters
    ----------
    records : the images.
    size : side of a crop.
    fill : colour outside the image.
    n_threads : that work on a batch.
    """

    def __init__(
        self, records: Sequence[ImageRecord], size: int, fill: tuple[float, float, float], n_threads: int
    ) -> None:
        self.images, self.size, self.fill = ImageStore(records), size, fill
        self._pool = ThreadPoolExecutor(max(1, n_threads))

    def read(self, batch: WindowBatch) -> Pixels:
        """(n, size, size, 3) pixels of a batch."""
        pixels = np.empty((len(batch.boxes), self.size, self.size, 3), np.float32)
        for _ in self._pool.map(lambda rows: self._fill(pixels, batch, rows), pieces_by_image(batch)):
            pass
        return pixels

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)

    def _fill(self, pixels: Pixels, batch: WindowBatch, rows: NDArray[np.int64]) -> None:
        image = self.images[int(batch.image[rows[0]])]
        windows = geometry.clip(batch.boxes[rows], image.shape[1], image.shape[0])
        wide = with_context(windows, (self.size, self.size), CONTEXT)
        pixels[rows] = resample(image, wide, self.size, self.size, fill=self.fill)


def pieces_by_image(batch: WindowBatch) -> list[NDArray[np.int64]]:
    """The rows of a batch, those of an image together."""
    order = np.argsort(batch.image, kind="stable")
    starts = np.flatnonzero(np.diff(batch.image[order], prepend=-1))
    return np.split(order, starts[1:])


def ahead(make: Callable[[int], T], start: int, stop: int) -> Iterator[T]:
    """make(start), ..., make(stop - 1), each begun before the one before it has been used."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(make, start) if start < stop else None
        for number in range(start + 1, stop + 1):
            assert future is not None
            made = future.result()
            future = pool.submit(make, number) if number < stop else None
            yield made
