"""Selective search written down plainly: sets of pixels, lists of edges, everything computed again at every step."""

import numpy as np

KERNEL = (6, 58, 128, 58, 6)
STEPS = ((0, 1), (1, 0), (1, 1), (1, -1))  # right, lower, lower right, lower left


def smoothed(plane):
    """A plane in sixteenths of a grey level."""
    height, width = plane.shape
    padded = np.pad(plane.astype(np.int64), 2, mode="edge")
    total = np.zeros((height, width), dtype=np.int64)
    for dy, a in enumerate(KERNEL):
        for dx, b in enumerate(KERNEL):
            total += a * b * padded[dy : dy + height, dx : dx + width]
    return (total + 2048) // 4096


def weighted_edges(planes):
    """(weight, direction, pixel, other pixel), lightest first."""
    smooth = np.stack([smoothed(plane) for plane in planes])
    _, height, width = smooth.shape
    edges = []
    for direction, (dy, dx) in enumerate(STEPS):
        for y in range(height - dy):
            for x in range(width):
                if 0 <= x + dx < width:
                    square = int(((smooth[:, y, x] - smooth[:, y + dy, x + dx]) ** 2).sum())
                    weight = int(np.sqrt(np.float32(square)) + np.float32(0.5))
                    edges.append((weight, direction, y * width + x, (y + dy) * width + x + dx))
    return sorted(edges)


def segmentation(planes, scale, min_size):
    """Labels from 0 in the order of the pixels."""
    _, height, width = planes.shape
    region = {pixel: frozenset([pixel]) for pixel in range(height * width)}
    heaviest = {region[pixel]: 0 for pixel in region}

    def join(one, other, weight):
        both = one | other
        heaviest[both] = weight
        for pixel in both:
            region[pixel] = both

    edges = weighted_edges(planes)
    for weight, _, one, other in edges:
        one, other = region[one], region[other]
        if one != other and all(weight <= heaviest[r] + (16 * scale) // len(r) for r in (one, other)):
            join(one, other, weight)
    for weight, _, one, other in edges:
        one, other = region[one], region[other]
        if one != other and min(len(one), len(other)) < min_size:
            join(one, other, weight)
    names = {}
    labels = [names.setdefault(region[pixel], len(names)) for pixel in range(height * width)]
    return np.array(labels).reshape(height, width)


def histograms(planes, mask):
    """Counts of colours (25 a channel) and of derivatives (8 x 10 a channel) of the pixels in a mask."""
    colours, texture = [], []
    for plane in planes:
        colours += np.bincount(plane[mask].astype(int) * 25 // 256, minlength=25).tolist()
        p = np.pad(plane.astype(int), 1, mode="edge")
        right = 3 * (p[:-2, 2:] - p[:-2, :-2] + p[2:, 2:] - p[2:, :-2]) + 10 * (p[1:-1, 2:] - p[1:-1, :-2])
        down = 3 * (p[2:, :-2] - p[:-2, :-2] + p[2:, 2:] - p[:-2, 2:]) + 10 * (p[2:, 1:-1] - p[:-2, 1:-1])
        for values in (right, down, right + down, down - right):
            for part in (np.maximum(values, 0), np.maximum(-values, 0)):
                scale = np.float32(10) / np.float32(part.max() + 1)
                bins = (part.astype(np.float32) * scale).astype(int)
                texture += np.bincount(bins[mask], minlength=10).tolist()
    return colours, texture


def similarity(one, other, wanted, n_channels, n_pixels):
    """Of two regions (pixels, box, colours, texture), as the paper adds it up."""
    n_one, n_other = one[0], other[0]
    value = 0.0
    for kind, n_histograms in ((0, n_channels), (1, 8 * n_channels)):
        if wanted[kind]:
            common = sum(min(a * n_other, b * n_one) for a, b in zip(one[2 + kind], other[2 + kind], strict=True))
            value += common / (n_one * n_other * n_histograms)
    if wanted[2]:
        value += 1.0 - (n_one + n_other) / n_pixels
    if wanted[3]:
        x1, y1, x2, y2 = around(one[1], other[1])
        value += 1.0 - ((x2 - x1) * (y2 - y1) - n_one - n_other) / n_pixels
    return value


def around(one, other):
    """The box around two boxes."""
    return (*map(min, one[:2], other[:2]), *map(max, one[2:], other[2:]))


def grouping(planes, labels, wanted):
    """Boxes of all regions, in the order in which they come about."""
    height, width = labels.shape
    regions = {}
    for name in range(labels.max() + 1):
        y, x = np.nonzero(labels == name)
        box = (x.min(), y.min(), x.max() + 1, y.max() + 1)
        regions[name] = (len(x), tuple(map(int, box)), *histograms(planes, labels == name))
    touching = set()
    for a, b in ((labels[:, 1:], labels[:, :-1]), (labels[1:], labels[:-1])):
        touching |= {(min(p), max(p)) for p in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True) if p[0] != p[1]}
    boxes = [regions[name][1] for name in sorted(regions)]
    while touching:
        _, (one, other) = min(
            (-similarity(regions[a], regions[b], wanted, len(planes), height * width), (a, b)) for a, b in touching
        )
        a, b, new = regions.pop(one), regions.pop(other), len(boxes)
        sums = [[p + q for p, q in zip(a[k], b[k], strict=True)] for k in (2, 3)]
        regions[new] = (a[0] + b[0], around(a[1], b[1]), *sums)
        boxes.append(regions[new][1])
        moved = {tuple(sorted(new if p in (one, other) else p for p in pair)) for pair in touching}
        touching = {pair for pair in moved if pair[0] != pair[1]}
    return np.array(boxes)
