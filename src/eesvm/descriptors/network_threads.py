"""How many threads the network of a descriptor takes.

In: a descriptor. Out: the same descriptor, whose network takes another number of threads: one where images are
described side by side, as many as there are cores where there is one image. Its numbers do not depend on that.
"""

from __future__ import annotations

import copy

from eesvm.descriptors.backbones import Backbone
from eesvm.descriptors.base import Descriptor
from eesvm.descriptors.transforms import Transformed


def with_threads(descriptor: Descriptor, n_threads: int | None) -> Descriptor:
    """The same descriptor, with a number of threads for its network where it has one; None leaves it as it is."""
    if isinstance(descriptor, Transformed):
        plain = with_threads(descriptor.descriptor, n_threads)
        if plain is descriptor.descriptor:
            return descriptor
        changed = copy.copy(descriptor)
        changed.descriptor = plain
        return changed
    backbone = getattr(descriptor, "backbone", None)
    if n_threads is None or not isinstance(backbone, Backbone) or backbone.n_threads == n_threads:
        return descriptor
    other = copy.copy(descriptor)
    other.backbone = backbone.with_threads(n_threads)  # type: ignore[attr-defined]
    return other
