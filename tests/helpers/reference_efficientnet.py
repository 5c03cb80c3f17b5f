"""EfficientNet-Lite in plain numpy, straight from the description of the network and the names in the weights' file.

Nothing is folded or fused, and the table of stages is written out a second time, so that a mistake in the package's
builder does not repeat itself here. Slow: for pictures of a few dozen pixels.
"""

import numpy as np

# per stage: repeats in lite0, in lite1 and in lite2, kernel, stride
STAGES = [
    ((1, 1, 1), 3, 1),
    ((2, 3, 3), 3, 2),
    ((2, 3, 3), 5, 2),
    ((3, 4, 4), 3, 2),
    ((3, 4, 4), 5, 1),
    ((4, 5, 5), 5, 2),
    ((1, 1, 1), 3, 1),
]


def forward(weights, picture, which):
    """All named maps of lite`which` for a normalised picture (3, h, w), as float64."""
    w = {name: np.asarray(values, np.float64) for name, values in weights.items()}
    maps = {}
    x = relu6(batch_norm(convolve(picture.astype(np.float64), w["_conv_stem.weight"], 2), w, "_bn0"))
    maps["stem"], stride, index = x, 2, 0
    for repeats, kernel, first_stride in STAGES:
        stride *= first_stride
        for repeat in range(repeats[which]):
            x = block(x, w, f"_blocks.{index}.", first_stride if repeat == 0 else 1, repeat > 0, kernel)
            maps[f"stride_{stride:02d}"] = x  # the last one of each stride stays
            index += 1
    maps["head"] = relu6(batch_norm(convolve(x, w["_conv_head.weight"], 1), w, "_bn1"))
    maps["features"] = maps["head"].mean(axis=(1, 2))
    maps["logits"] = w["_fc.weight"] @ maps["features"] + w["_fc.bias"]
    return maps


def block(x, w, prefix, stride, has_skip, kernel):
    inside = x
    if prefix + "_expand_conv.weight" in w:
        inside = relu6(batch_norm(convolve(inside, w[prefix + "_expand_conv.weight"], 1), w, prefix + "_bn0"))
    assert w[prefix + "_depthwise_conv.weight"].shape[-1] == kernel
    inside = relu6(batch_norm(depthwise(inside, w[prefix + "_depthwise_conv.weight"], stride), w, prefix + "_bn1"))
    inside = batch_norm(convolve(inside, w[prefix + "_project_conv.weight"], 1), w, prefix + "_bn2")
    return x + inside if has_skip else inside


def patches(x, kernel, stride):
    """(c, kernel, kernel, h', w') with TensorFlow's "SAME" padding: as even as possible, the odd one at the end."""
    outs, pads = [], [(0, 0)]
    for n in x.shape[1:]:
        outs.append(-(-n // stride))
        missing = max((outs[-1] - 1) * stride + kernel - n, 0)
        pads.append((missing // 2, missing - missing // 2))
    padded = np.pad(x, pads)
    found = np.empty((len(x), kernel, kernel, *outs))
    for i in range(kernel):
        for j in range(kernel):
            rows = slice(i, i + stride * outs[0], stride)
            columns = slice(j, j + stride * outs[1], stride)
            found[:, i, j] = padded[:, rows, columns][:, : outs[0], : outs[1]]
    return found


def convolve(x, kernel, stride):
    return np.einsum("oikl,iklyx->oyx", kernel, patches(x, kernel.shape[-1], stride), optimize=True)


def depthwise(x, kernel, stride):
    return np.einsum("ckl,cklyx->cyx", kernel[:, 0], patches(x, kernel.shape[-1], stride), optimize=True)


def batch_norm(x, w, name):
    scale, shift, mean, variance = (
        w[f"{name}.{part}"][:, None, None] for part in ("weight", "bias", "running_mean", "running_var")
    )
    return (x - mean) / np.sqrt(variance + 1e-3) * scale + shift


def relu6(x):
    return np.minimum(np.maximum(x, 0), 6)
