"""What is at which address: the page, its assets, the card of the model, pictures of exemplars, and detection.

    GET  /                          the page
    GET  /assets/NAME               its style, scripts and icon
    GET  /api/model                 classes, limits, and the recall floors as far as they are known
    GET  /api/exemplars/N.jpg       a picture of exemplar N
    POST /api/detect                an image -> what is found in it, as JSON
    POST /api/detect?preview=1      the same, with the image as it was understood: upright, first frame, over white

In: an `Inference` and a search for floors. Out: `ModelSite`, a `Site` for the server. Assets are read once.
Not here: sockets and limits (`server`), detection (`inference`).
"""

from __future__ import annotations

import re
from functools import partial
from importlib.resources import files
from typing import Any

from eesvm._support.validation import InputError
from eesvm.report.serving.floors import FloorSearch
from eesvm.report.serving.inference import Inference
from eesvm.report.serving.messages import Response, json_response
from eesvm.report.serving.server import Upload

_ASSETS = {
    "/": ("serve.html", "text/html; charset=utf-8"),
    "/assets/serve.css": ("serve.css", "text/css; charset=utf-8"),
    "/assets/serve.js": ("serve.js", "text/javascript; charset=utf-8"),
    "/assets/serve_show.js": ("serve_show.js", "text/javascript; charset=utf-8"),
    "/assets/serve.svg": ("serve.svg", "image/svg+xml"),
}
_EXEMPLAR = re.compile(r"/api/exemplars/(0|[1-9][0-9]{0,8})\.jpg")
_DETECT = "/api/detect"


class ModelSite:
    """A model behind addresses."""

    def __init__(self, inference: Inference, floors: FloorSearch, max_upload: int) -> None:
        self._inference, self._floors, self._max_upload = inference, floors, max_upload
        folder = files("eesvm.report.serving") / "assets"
        self._assets = {
            target: Response((folder / name).read_bytes(), kind) for target, (name, kind) in _ASSETS.items()
        }

    def page(self, target: str) -> Response | None:
        """The answer to GET."""
        if target == "/api/model":
            return json_response(self._card())
        exemplar = _EXEMPLAR.fullmatch(target)
        if exemplar is not None:
            picture = self._inference.exemplar_picture(int(exemplar[1]))
            return None if picture is None else Response(picture, "image/jpeg")
        return self._assets.get(target)

    def upload(self, target: str) -> Upload | None:
        """What takes a POST."""
        if target not in (_DETECT, f"{_DETECT}?preview=1"):
            return None
        return Upload(_is_image, partial(self._detect, target != _DETECT))

    def _card(self) -> dict[str, Any]:
        state = self._floors.state
        floors = {"state": state.kind, "text": state.text, "rows": [] if state.table is None else state.table.rows()}
        return {**self._inference.card(), "max_upload": self._max_upload, "floors": floors}

    def _detect(self, with_preview: bool, content: bytes) -> Response:
        try:
            return json_response(self._inference.detect(content, self._floors.state.table, with_preview))
        except InputError as error:
            return json_response({"error": " ".join(str(error).split())}, 422)
        except MemoryError:
            return json_response({"error": "There is not enough memory for this image."}, 422)


def _is_image(media_type: str) -> bool:
    """Pixels of any kind; drawings of lines have none."""
    return re.fullmatch(r"image/[a-z0-9.+*-]{1,60}", media_type) is not None and media_type != "image/svg+xml"
