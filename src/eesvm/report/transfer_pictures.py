"""Pictures of annotation transfer: exemplars laid over what they won (figure 7 of the paper), panels and grids.

In: RGB images, boxes of detections, annotations of exemplars. Out: RGB arrays, which `images.write_image` writes.
A detection is framed in green, the exemplar superimposed on it is outlined in yellow: along the mask that the detection
inherits, or its box where there is no mask. `superimposed` shows it in its image, `pair` beside the exemplar, `panel`
beside the exemplar and the transferred mask, `grid` many. Texts below pictures may have several lines; lines too long
for their column are broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eesvm._support.extras import optional_module
from eesvm._support.validation import InputError, check_number
from eesvm.images.warping import Edges, PixelRange, covered_share, pixels_touched, resampled, source_edges
from eesvm.structures import Box, ExemplarAnnotation
from eesvm.transfer.inheritance import TransferredAnnotation, transfer
from eesvm.transfer.mirroring import mirrored
from eesvm.transfer.target import HALF, Target, check_image, source_box

GREEN, YELLOW, PINK = (0, 230, 0), (255, 225, 0), (255, 90, 220)  # a detection, the exemplar, its parts

_WHITE, _GREY, _PALE, _INK = (255, 255, 255), (150, 150, 150), (236, 236, 236), (34, 34, 34)
_GAP = 8  # pixels between pictures of a panel or grid
_MOST_LINES = 4  # of a text below a picture
_COVER, _COVER_OF_A_BOX = 0.8, 0.5  # how much an exemplar covers the image in its mask, and without one

_Picture = NDArray[np.uint8]


def superimposed(
    image: _Picture,
    box: ArrayLike,
    annotation: ExemplarAnnotation,
    *,
    alpha: float | None = None,
    context: float | None = 0.25,
    height: int | None = 320,
    is_mirrored: bool = False,
    transferred: TransferredAnnotation | None = None,
) -> _Picture:
    """The image around a detection with the exemplar that won it laid over it.

    Parameters
    ----------
    image : (h, w, 3) uint8, RGB.
    box : of the detection, half-open xyxy.
    annotation : of the exemplar.
    alpha : how much the exemplar covers the image, from 0 to 1; without a picture of it only the outline is drawn.
        Default: 0.8 in its mask; 0.5 where it has none and fills the box, so that the detection shines through.
    context : how much of the image is shown around the box, in sides of the box; None shows the whole image.
    height : of the result in pixels; None leaves the pixels as they are.
    is_mirrored : the exemplar won as its mirror image.
    transferred : what the detection inherits in the whole image: the outline is then that of its mask, such as a
        refined one, or the box where it has none. Default: of the exemplar's mask, as it is laid over the detection.

    Returns
    -------
    ndarray : an RGB picture, uint8.
    """
    annotation = mirrored(annotation) if is_mirrored else annotation
    cover = (_COVER_OF_A_BOX if annotation.mask is None else _COVER) if alpha is None else alpha
    check_number(cover, "alpha", minimum=0, maximum=1)
    scene = _Scene.of(image, box, context, height)
    canvas = scene.pixels.copy()
    target = Target.of(scene.box, scene.size)
    handed = transfer(annotation, scene.box, scene.size)
    inside = target.pixels
    view = canvas[inside.y1 : inside.y2, inside.x1 : inside.x2]
    is_shown = np.ones(view.shape[:2], dtype=bool) if handed.mask is None else handed.mask
    if annotation.picture is not None:
        exemplar = _warped_picture(annotation, scene.box, inside)
        mixed = (1 - cover) * view + cover * exemplar
        view[is_shown] = np.rint(mixed).astype(np.uint8)[is_shown]
    thickness = _thickness(canvas)
    _frame(canvas, scene.box, GREEN, thickness)
    outlined = handed.mask if transferred is None else transferred.mask
    if transferred is not None and outlined is not None:
        whole = scene.mask_here(outlined, transferred.offset)
        outlined = whole[inside.y1 : inside.y2, inside.x1 : inside.x2]
    if outlined is None:
        _frame(canvas, _shrunk(scene.box, thickness + 1), YELLOW, thickness)
    else:
        # Within the frame, so that neither hides the other where the mask fills the box.
        draw_outline(view, outlined & ~_rim(outlined.shape, thickness), YELLOW, thickness)
    return canvas


def pair(
    image: _Picture,
    box: ArrayLike,
    annotation: ExemplarAnnotation,
    transferred: TransferredAnnotation | None = None,
    *,
    context: float | None = 0.25,
    height: int = 176,
) -> _Picture:
    """Side by side: the detection in its image, with the outline of what it inherits, and the exemplar's own picture.

    Parameters
    ----------
    image : (h, w, 3) uint8, RGB.
    box : of the detection, half-open xyxy.
    annotation : of the exemplar.
    transferred : what the detection inherits, such as a consensus. Default: what `transfer` gives of the exemplar.
    context : how much of the image is shown around the box, in sides of the box; None shows the whole image.
    height : in pixels, at least 16.

    Returns
    -------
    ndarray : an RGB picture, uint8.
    """
    check_number(height, "height", minimum=16, integer=True)
    scene = _Scene.of(image, box, context, height)
    handed = transfer(annotation, box, (image.shape[1], image.shape[0])) if transferred is None else transferred
    detection = scene.pixels.copy()
    if handed.mask is not None:
        draw_outline(detection, scene.mask_here(handed.mask, handed.offset), YELLOW, _thickness(detection))
    _frame(detection, scene.box, GREEN, _thickness(detection))
    between = np.full((height, _GAP // 2, 3), 255, dtype=np.uint8)
    return np.concatenate([detection, between, _exemplar_picture(annotation, height)], axis=1)


def panel(
    image: _Picture,
    box: ArrayLike,
    annotation: ExemplarAnnotation,
    transferred: TransferredAnnotation | None = None,
    *,
    context: float | None = 0.25,
    height: int = 240,
    captions: Sequence[str] = (),
) -> _Picture:
    """Side by side: the detection in its image, the exemplar's own picture with its mask, what was transferred.

    Where nothing was transferred that can be drawn, the third picture is pale all over.

    Parameters
    ----------
    image : (h, w, 3) uint8, RGB.
    box : of the detection, half-open xyxy.
    annotation : of the exemplar.
    transferred : what the detection inherits, such as a consensus. Default: what `transfer` gives of the exemplar.
    context : how much of the image is shown around the box, in sides of the box; None shows the whole image.
    height : of each picture in pixels, at least 16.
    captions : texts under the three pictures.

    Returns
    -------
    ndarray : an RGB picture, uint8.
    """
    check_number(height, "height", minimum=16, integer=True)
    scene = _Scene.of(image, box, context, height)
    detection = scene.pixels.copy()
    _frame(detection, scene.box, GREEN, _thickness(detection))
    handed = transfer(annotation, box, (image.shape[1], image.shape[0])) if transferred is None else transferred
    pictures = [detection, _exemplar_picture(annotation, height), _transferred_picture(scene, handed)]
    return grid(pictures, columns=3, height=height, captions=captions, min_width=height if captions else 0)


def grid(
    pictures: Sequence[_Picture],
    columns: int = 4,
    height: int = 240,
    captions: Sequence[str] = (),
    title: str = "",
    *,
    min_width: int = 0,
) -> _Picture:
    """Pictures in rows, each at the same height and centred in its column, on white; texts below them.

    Parameters
    ----------
    pictures : (h, w, 3) uint8, RGB, of any sizes.
    columns : pictures of a row.
    height : of each picture in pixels, at least 16.
    captions : a text for each picture; default: none.
    title : above all.
    min_width : least width of a column in pixels, which leaves room for the texts of narrow pictures.

    Returns
    -------
    ndarray : an RGB picture, uint8.
    """
    check_number(columns, "columns", minimum=1, integer=True)
    check_number(height, "height", minimum=16, integer=True)
    check_number(min_width, "min_width", minimum=0, integer=True)
    if not pictures:
        raise InputError("`pictures` must hold at least one picture")
    if captions and len(captions) != len(pictures):
        raise InputError(f"`captions` must be as many as the pictures, {len(pictures)}, got {len(captions)}")
    scaled = [_scaled(check_image(picture), height) for picture in pictures]
    columns = min(columns, len(scaled))
    widths = [max(min_width, *(each.shape[1] for each in scaled[column::columns])) for column in range(columns)]
    whole_width = sum(widths) + _GAP * (columns - 1)
    text_size = max(11, height // 16)
    line_height = (text_size * 4) // 3
    font = text_font(text_size) if captions or title else None
    heading = _lines(title, font, whole_width) if title else []
    below = [_caption(text, font, widths[number % columns]) for number, text in enumerate(captions)]
    top = len(heading) * line_height + text_size // 3 if heading else 0
    n_lines = [max(map(len, below[k : k + columns]), default=0) for k in range(0, len(scaled), columns)]
    heights = [height + n * line_height + _GAP for n in n_lines]  # of the rows
    tops = np.cumsum([top + _GAP, *heights]).tolist()
    sheet = np.full((tops[-1], whole_width + 2 * _GAP, 3), 255, dtype=np.uint8)
    texts = [_Text(heading, _GAP, text_size // 3, whole_width)] if heading else []
    for number, each in enumerate(scaled):
        row, column = divmod(number, columns)
        left = _GAP + sum(widths[:column]) + column * _GAP
        y, x = tops[row], left + (widths[column] - each.shape[1]) // 2
        sheet[y : y + height, x : x + each.shape[1]] = each
        if captions:
            texts.append(_Text(below[number], left, y + height + text_size // 6, widths[column]))
    return _written(sheet, texts, font, line_height)


def is_drawn(handed: TransferredAnnotation) -> bool:
    """Whether pictures show anything of it beside the box: labels are not drawn."""
    return handed.mask is not None or bool(handed.parts or handed.keypoints)


class _Text(NamedTuple):
    """Lines, the place of the first one, and the width that they are in the middle of."""

    lines: Sequence[str]
    x: int
    y: int
    width: int


class _Scene:
    """A piece of an image, scaled, and where the detection's box lies in it."""

    def __init__(self, pixels: _Picture, box: Box, origin: tuple[int, int], scale: tuple[float, float]) -> None:
        self.pixels, self.box, self.origin, self.scale = pixels, box, origin, scale
        self.size = (pixels.shape[1], pixels.shape[0])

    @classmethod
    def of(cls, image: _Picture, box: ArrayLike, context: float | None, height: int | None) -> _Scene:
        whole = check_image(image)
        n_rows, n_columns = whole.shape[:2]
        target = Target.of(box, (n_columns, n_rows))
        x1, y1, x2, y2 = 0, 0, n_columns, n_rows
        if context is not None:
            check_number(context, "context", minimum=0)
            margin = context * (target.box[2:] - target.box[:2])
            wide = np.concatenate([target.box[:2] - margin, target.box[2:] + margin])
            x1, y1, x2, y2 = pixels_touched(wide, n_columns, n_rows)
        piece = whole[y1:y2, x1:x2]
        pixels = piece if height is None else _scaled(piece, height)
        scale = (pixels.shape[1] / piece.shape[1], pixels.shape[0] / piece.shape[0])
        return cls(pixels, (target.box - [x1, y1, x1, y1]) * [*scale, *scale], (x1, y1), scale)

    def box_here(self, box: Box) -> Box:
        """A box of the image where it lies in the picture."""
        return np.asarray((box - [*self.origin, *self.origin]) * [*self.scale, *self.scale])

    def mask_here(self, mask: NDArray[np.bool_], offset: tuple[int, int]) -> NDArray[np.bool_]:
        """A mask that is a piece of the image, as pixels of the picture."""
        columns = np.arange(self.size[0] + 1) / self.scale[0] + self.origin[0] - offset[0]
        rows = np.arange(self.size[1] + 1) / self.scale[1] + self.origin[1] - offset[1]
        return covered_share(mask, Edges(columns, rows)) >= HALF


def _transferred_picture(scene: _Scene, handed: TransferredAnnotation) -> _Picture:
    """The detection, paler outside the transferred mask; parts and keypoints on top. With none of them all is pale."""
    picture = scene.pixels.copy()
    thickness = _thickness(picture)
    if not is_drawn(handed):
        picture = _blend(picture, _WHITE, 0.65)
    if handed.mask is not None:
        mask = scene.mask_here(handed.mask, handed.offset)
        picture[~mask] = _blend(picture, _WHITE, 0.65)[~mask]
        picture[mask] = _blend(picture, YELLOW, 0.2)[mask]
        draw_outline(picture, mask, YELLOW, thickness)
    _frame(picture, scene.box, GREEN, thickness)
    for part in handed.parts:
        _frame(picture, scene.box_here(part.box), PINK, thickness)
    for point in handed.keypoints.values():
        x, y = scene.box_here(np.array([*point[:2], *point[:2]]))[:2]
        dot = np.array([x - thickness, y - thickness, x + thickness, y + thickness])
        left, top, right, bottom = pixels_touched(dot, *scene.size)
        picture[top:bottom, left:right] = PINK
    return picture


def _exemplar_picture(annotation: ExemplarAnnotation, height: int) -> _Picture:
    """The exemplar as it is in its own image, outlined along its mask or framed, in yellow; grey without a picture."""
    n_rows, n_columns = _piece_shape(annotation)
    own = np.full((n_rows, n_columns, 3), _PALE, dtype=np.uint8)
    if annotation.picture is not None:
        own = check_image(annotation.picture)
    elif annotation.mask is not None:
        own[annotation.mask] = _GREY
    picture = _scaled(own, height).copy()
    width, thickness = picture.shape[1], _thickness(picture)
    if annotation.mask is None:
        _frame(picture, np.array([0.0, 0.0, width, height]), YELLOW, thickness)
    else:
        edges = Edges(np.linspace(0, n_columns, width + 1), np.linspace(0, n_rows, height + 1))
        draw_outline(picture, covered_share(annotation.mask, edges) >= HALF, YELLOW, thickness)
    return picture


def _warped_picture(annotation: ExemplarAnnotation, box: Box, pixels: PixelRange) -> _Picture:
    """The exemplar's picture, which may have been made smaller, on the pixels of the detection."""
    picture = check_image(annotation.picture)
    n_rows, n_columns = _piece_shape(annotation)
    columns, rows = source_edges(pixels, box, source_box(annotation))
    return resampled(picture, Edges(columns * picture.shape[1] / n_columns, rows * picture.shape[0] / n_rows))


def _piece_shape(annotation: ExemplarAnnotation) -> tuple[int, int]:
    """Height and width of the pixels that the exemplar's box touches, which its mask has too."""
    if annotation.mask is not None:
        n_rows, n_columns = annotation.mask.shape
        return n_rows, n_columns
    x1, y1, x2, y2 = pixels_touched(source_box(annotation), 1 << 31, 1 << 31)
    return y2 - y1, x2 - x1


def _scaled(picture: _Picture, height: int) -> _Picture:
    """The picture at another height, its shape kept."""
    n_rows, n_columns = picture.shape[:2]
    if n_rows == height:
        return picture
    width = max(1, round(n_columns * height / n_rows))
    return resampled(picture, Edges(np.linspace(0, n_columns, width + 1), np.linspace(0, n_rows, height + 1)))


def _blend(picture: _Picture, colour: tuple[int, int, int], share: float) -> _Picture:
    return np.rint((1 - share) * picture + share * np.array(colour)).astype(np.uint8)


def _thickness(picture: _Picture) -> int:
    """Of lines, so that they are seen at any size."""
    return max(2, round(min(picture.shape[:2]) / 100))


def _shrunk(box: Box, by: float) -> Box:
    return box + np.array([by, by, -by, -by])


def _frame(picture: _Picture, box: Box, colour: tuple[int, int, int], thickness: int) -> None:
    """Draw the frame of a box into the picture, within the box and the picture: a box that leaves it stays visible."""
    n_rows, n_columns = picture.shape[:2]
    x1, y1, x2, y2 = pixels_touched(box, n_columns, n_rows)
    picture[y1:y2, x1:x2][_rim((y2 - y1, x2 - x1), thickness)] = colour


def _rim(shape: tuple[int, ...], thickness: int) -> NDArray[np.bool_]:
    rim = np.ones(shape, dtype=bool)
    rim[thickness:-thickness, thickness:-thickness] = False
    return rim


def draw_outline(picture: _Picture, mask: NDArray[np.bool_], colour: tuple[int, int, int], thickness: int) -> None:
    """Draw the inner rim of a mask into the picture; where the mask ends at the picture's border there is a rim too.

    Parameters
    ----------
    picture : (h, w, 3) uint8, RGB, which is changed.
    mask : (h, w) bool.
    colour : red, green and blue.
    thickness : of the rim, in pixels.
    """
    inner = np.pad(mask, 1)
    for _ in range(thickness):
        core = inner[1:-1, 1:-1]
        core = core & inner[:-2, 1:-1] & inner[2:, 1:-1] & inner[1:-1, :-2] & inner[1:-1, 2:]
        inner = np.pad(core, 1)
    picture[mask & ~inner[1:-1, 1:-1]] = colour


def text_font(size: int) -> Any:
    """Matplotlib's own font, which has more letters than Pillow's and spaces them well when it is small."""
    import matplotlib as mpl

    fonts = optional_module("PIL.ImageFont")
    try:
        return fonts.truetype(str(Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)
    except OSError:
        return fonts.load_default(size)


def _written(sheet: _Picture, texts: Sequence[_Text], font: Any, line_height: int) -> _Picture:
    """The sheet with each text in its place."""
    if not texts:
        return sheet
    picture = optional_module("PIL.Image").fromarray(sheet)
    pen = optional_module("PIL.ImageDraw").Draw(picture)
    for text in texts:
        for number, line in enumerate(text.lines):
            x = text.x + (text.width - font.getlength(line)) / 2
            pen.text((x, text.y + number * line_height), line, fill=_INK, font=font)
    return np.asarray(picture)


def _lines(text: str, font: Any, width: int) -> list[str]:
    """The lines of a text; those too long for the width are broken after a space, or else after a mark in a name."""
    lines = []
    for line in text.splitlines():
        rest = line
        while (n_fitting := _n_fitting(rest, font, width)) < len(rest):
            after_mark = max(rest.rfind(mark, 0, n_fitting) for mark in "_-/") + 1
            end = rest.rfind(" ", 0, n_fitting + 1) + 1 or after_mark or n_fitting
            lines.append(rest[:end].rstrip())
            rest = rest[end:].lstrip()
        lines.append(rest)
    return lines


def _caption(text: str, font: Any, width: int) -> list[str]:
    """The lines of a text that find a place below a picture; dots say that there are more."""
    lines = _lines(text, font, width)
    if len(lines) <= _MOST_LINES:
        return lines
    *whole, last = lines[:_MOST_LINES]
    return [*whole, last[: _n_fitting(last, font, width - font.getlength("..."))] + "..."]


def _n_fitting(text: str, font: Any, width: float) -> int:
    """How many letters of the text fit in the width, at least one."""
    n = len(text)
    while n > 1 and font.getlength(text[:n]) > width:
        n -= 1
    return n
