"""The embedded default: scenes with handwritten digits among clutter, made from what scikit-learn carries.

In: how many, and a random state. Out: a `Dataset` with the splits "train" and "test"; every object has a box, an exact
mask, an upper and a lower part, and metadata. No download; an image is drawn when it is read, in some milliseconds.
The objects are real handwriting in varied size, rotation, slant, contrast and colour, some of them partly covered. The
rest is photograph, other digits and letters, which are nobody's class. Training and test scenes share neither a digit
image nor a piece of photograph. Shapes depend on numpy alone, colours also on the JPEG decoder.
It is a detection problem that fits into a test, not a picture of the world.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError, check_number
from eesvm.datasets._scene_glyphs import Draw, Glyph, Patch, Pose, blob, digits, letter, place
from eesvm.datasets._scene_pixels import background, fill, finish, overlap, paste, surface
from eesvm.structures import Box, Dataset, ImageRecord, Instance, Part

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPLITS = ("train", "test")

_MIN_SIDE = 96  # of an image: less leaves no room for the objects
_MAX_TURN = 18.0  # degrees: a nine does not become a six
_SHARE_COVERED = 0.3
_DIFFICULT = 0.5  # of the ink hidden: not counted against a detector, as in PASCAL VOC


def make_scenes(
    n_train: int = 60,
    n_test: int = 60,
    classes: Sequence[str] = ("three", "four", "five", "eight"),
    width: int = 320,
    height: int = 240,
    random_state: int = 0,
) -> Dataset:
    """Scenes with one to four objects each; the same arguments give the same scenes.

    Scene i of a split does not depend on how many there are. Boxes are half-open, tight around what can be seen; an
    object with ink outside of the image or under something else has `is_truncated`, and `is_difficult` if that is more
    than half of it. Metadata: `digit`, `digit_image` (the number of the image in `sklearn.datasets.load_digits`),
    `rotation` (degrees, clockwise), `slant`, `aspect`, `scale` (pixels of the full eight rows), `contrast` (0 to 1),
    `occlusion` (share of the ink hidden) and `full_box` (around all of the ink, also the hidden).

    Parameters
    ----------
    n_train, n_test : scenes of the splits "train" and "test".
    classes : names of digits, "zero" to "nine"; the other digits are distractors.
    width, height : of every scene, in pixels.
    random_state : int >= 0, seeds all that is drawn.
    """
    for name, value, minimum in (("n_train", n_train, 0), ("n_test", n_test, 0), ("random_state", random_state, 0)):
        check_number(value, name, minimum=minimum, integer=True)
    for name, value in (("width", width), ("height", height)):
        check_number(value, name, minimum=_MIN_SIDE, maximum=4096, integer=True)
    classes = _check_classes(classes)
    recipes = [
        _Recipe(int(random_state), split, index, classes, int(width), int(height))
        for split, n in enumerate((n_train, n_test))
        for index in range(n)
    ]
    splits = {name: tuple(r.image_id for r in recipes if r.split == split) for split, name in enumerate(SPLITS)}
    return Dataset("scenes", tuple(_record(recipe) for recipe in recipes), classes, splits)


@dataclass(frozen=True)
class _Recipe:
    """All that one scene is made from; small, so that it can be sent to another process."""

    random_state: int
    split: int  # also the half of the photographs, and of the digit images
    index: int
    classes: tuple[str, ...]
    width: int
    height: int

    @property
    def image_id(self) -> str:
        return f"{SPLITS[self.split]}_{self.index:04d}"

    def draw(self, stream: int) -> Draw:
        """Shapes and pixels have streams of their own: looking at one does not move the other."""
        return Draw(self.random_state, self.split, self.index, stream)


@dataclass(frozen=True, kw_only=True)
class _Item:
    """Something in a scene."""

    opacity: Patch
    x: int = 0  # of the patch's left column
    y: int = 0
    contrast: float | None = None  # None: a piece of photograph

    @property
    def mask(self) -> NDArray[np.bool_]:
        return self.opacity >= 0.5


@dataclass(frozen=True, kw_only=True)
class _Object(_Item):
    """An item of one of the classes."""

    digit_image: int
    is_upper: NDArray[np.bool_]
    pose: Pose


def _check_classes(classes: Sequence[str]) -> tuple[str, ...]:
    if isinstance(classes, str) or not classes or len(set(classes)) != len(classes) or not set(classes) <= set(NAMES):
        raise InputError(f"`classes` must be different names from 'zero' to 'nine', at least one, got {classes!r}")
    return tuple(classes)


def _record(recipe: _Recipe) -> ImageRecord:
    instances = tuple(_instances(recipe, _layout(recipe)))
    return ImageRecord(recipe.image_id, partial(_render, recipe), recipe.width, recipe.height, instances)


def _layout(recipe: _Recipe) -> list[_Item]:
    """What is in the scene, from back to front."""
    draw = recipe.draw(0)
    objects: list[_Item] = [_object(recipe, draw) for _ in range(1 + draw.integer(4))]
    distractors = [_distractor(recipe, draw) for _ in range(1 + draw.integer(5))]
    placed: list[_Item] = []
    for item in objects + distractors:  # the objects first: they get the room
        spot = _free_spot(item, placed, recipe, draw)
        if spot is not None:
            placed.append(spot)
    items = []
    for number in np.argsort(draw.table(len(placed)), kind="stable"):
        item = placed[number]
        items.append(item)
        if isinstance(item, _Object) and draw.chance(_SHARE_COVERED):
            items.append(_cover(item, draw))
    return items


def _object(recipe: _Recipe, draw: Draw) -> _Object:
    digit = NAMES.index(recipe.classes[draw.integer(len(recipe.classes))])
    candidates = np.flatnonzero(digits()[1] == digit)
    candidates = np.array_split(candidates, 2)[recipe.split]  # the file goes writer by writer: mostly other hands, too
    index = int(candidates[draw.integer(len(candidates))])
    glyph, pose, contrast = _posed(digits()[0][index], recipe, draw)
    return _Object(opacity=glyph.opacity, contrast=contrast, digit_image=index, is_upper=glyph.is_upper, pose=pose)


def _distractor(recipe: _Recipe, draw: Draw) -> _Item:
    others = np.flatnonzero(~np.isin(digits()[1], [NAMES.index(name) for name in recipe.classes]))
    if len(others) and draw.chance(0.6):
        others = np.array_split(others, 2)[recipe.split]
        ink = digits()[0][others[draw.integer(len(others))]]
    else:
        ink = letter(draw)
    glyph, _, contrast = _posed(ink, recipe, draw)
    return _Item(opacity=glyph.opacity, contrast=contrast)


def _posed(ink: NDArray[np.float64], recipe: _Recipe, draw: Draw) -> tuple[Glyph, Pose, float]:
    """The glyph in a random pose, and its contrast."""
    pose = Pose(
        cell=min(recipe.width, recipe.height) * 0.024 * 2.2 ** draw.uniform(),
        aspect=draw.uniform(0.8, 1.1),
        rotation=draw.uniform(-_MAX_TURN, _MAX_TURN),
        slant=draw.uniform(-0.2, 0.2),
    )
    return place(ink, pose), pose, 0.15 + 0.6 * draw.uniform() ** 1.2


def _free_spot(item: _Item, placed: list[_Item], recipe: _Recipe, draw: Draw) -> _Item | None:
    """The item at a place where it hardly touches those before it; None after too many tries."""
    height, width = item.opacity.shape
    beyond = 0.2 if draw.chance(0.15) else -0.01  # of its side, that may lie outside of the image
    for _ in range(40):
        x = round(draw.uniform(-beyond * width, recipe.width - (1 - beyond) * width))
        y = round(draw.uniform(-beyond * height, recipe.height - (1 - beyond) * height))
        if all(_is_apart((x, y, width, height), (p.x, p.y, *p.opacity.shape[::-1])) for p in placed):
            return replace(item, x=x, y=y)
    return None


def _is_apart(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> bool:
    """Whether two x, y, width, height share less than a twelfth of the smaller one."""
    across = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    down = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    return max(0, across) * max(0, down) * 12 < min(a[2] * a[3], b[2] * b[3])


def _cover(item: _Item, draw: Draw) -> _Item:
    """A piece of photograph that hides 10 to 45 per cent of the ink, from one side."""
    down, right = np.nonzero(item.mask)
    angle = draw.uniform(0, 2 * np.pi)
    along = np.cos(angle) * right + np.sin(angle) * down
    across = np.cos(angle) * down - np.sin(angle) * right
    edge = np.quantile(along, 1 - draw.uniform(0.1, 0.45))
    hidden = along >= edge
    depth = along.max() - edge + draw.uniform(4, 20)
    breadth = np.ptp(across[hidden]) + draw.uniform(8, 24)
    patch = blob(depth, breadth, angle, 8.0)
    middle, aside = edge + depth / 2, (across[hidden].min() + across[hidden].max()) / 2
    x = item.x + np.cos(angle) * middle - np.sin(angle) * aside - patch.shape[1] / 2
    y = item.y + np.sin(angle) * middle + np.cos(angle) * aside - patch.shape[0] / 2
    return _Item(opacity=patch, x=round(x), y=round(y))


def _instances(recipe: _Recipe, items: list[_Item]) -> Iterator[Instance]:
    """The objects of which something can be seen."""
    owner = np.full((recipe.height, recipe.width), -1)
    for number, item in enumerate(items):
        inner, outer = overlap(owner.shape, item.opacity.shape, item.x, item.y)
        owner[outer][item.mask[inner]] = number
    index = 0
    for number, item in enumerate(items):
        visible = owner == number
        if isinstance(item, _Object) and visible.any():
            yield _instance(recipe, item, visible, index)
            index += 1


def _instance(recipe: _Recipe, item: _Object, visible: NDArray[np.bool_], index: int) -> Instance:
    box = _tight_box(visible)
    x1, y1, x2, y2 = box.astype(int)
    occlusion = 1 - int(visible.sum()) / int(item.mask.sum())
    digit = int(digits()[1][item.digit_image])
    return Instance(
        class_name=NAMES[digit],
        box=box,
        image_id=recipe.image_id,
        index=index,
        mask=partial(_whole_mask, visible[y1:y2, x1:x2].copy(), x1, y1, recipe.width, recipe.height),
        parts=tuple(_parts(item, visible)),
        is_difficult=occlusion > _DIFFICULT,
        is_truncated=occlusion > 0,
        metadata=_metadata(item, digit, occlusion),
        source=f"make_scenes(random_state={recipe.random_state})",
    )


def _metadata(item: _Object, digit: int, occlusion: float) -> dict[str, object]:
    return {
        "digit": digit,
        "digit_image": item.digit_image,
        "rotation": item.pose.rotation,
        "slant": item.pose.slant,
        "aspect": item.pose.aspect,
        "scale": item.pose.cell * 8,
        "contrast": item.contrast,
        "occlusion": occlusion,
        "full_box": tuple(_tight_box(item.mask, item.x, item.y).tolist()),
    }


def _parts(item: _Object, visible: NDArray[np.bool_]) -> Iterator[Part]:
    """The upper and the lower half of the ink, as far as they can be seen."""
    is_upper = np.zeros(visible.shape, dtype=bool)
    inner, outer = overlap(visible.shape, item.opacity.shape, item.x, item.y)
    is_upper[outer] = item.is_upper[inner]
    for name, half in (("upper", visible & is_upper), ("lower", visible & ~is_upper)):
        if half.any():
            yield Part(name, _tight_box(half))


def _tight_box(mask: NDArray[np.bool_], x: int = 0, y: int = 0) -> Box:
    """The half-open box around a mask whose upper left corner lies at x, y."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return np.array([x + columns[0], y + rows[0], x + columns[-1] + 1, y + rows[-1] + 1], dtype=np.float64)


def _whole_mask(part: NDArray[np.bool_], x: int, y: int, width: int, height: int) -> NDArray[np.bool_]:
    mask = np.zeros((height, width), dtype=bool)
    mask[y : y + part.shape[0], x : x + part.shape[1]] = part
    return mask


def _render(recipe: _Recipe) -> NDArray[np.uint8]:
    draw = recipe.draw(1)
    image = background(recipe.width, recipe.height, recipe.split, draw)
    for item in _layout(recipe):
        if item.contrast is None:
            piece = surface(item.opacity.shape[1], item.opacity.shape[0], recipe.split, draw)
        else:
            piece = fill(image, item.opacity, item.x, item.y, item.contrast, recipe.split, draw)
        paste(image, piece, item.opacity, item.x, item.y)
    return finish(image, draw)
