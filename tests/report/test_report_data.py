"""The data of a report as JSON."""

import json
import math
from base64 import b64decode

from eesvm.report.data import Class, Exemplar, Image, ReportData, Section
from eesvm.report.static_page import Picture, Table


def test_everything_has_a_place_in_json():
    data = ReportData(
        title="a\u2028b\udcff",
        headline="",
        classes=(Class("cat", 1, 2, average_precision=1 / 3, n_objects=1234567),),
        exemplars=(Exemplar(0, "x", 0, math.inf, math.nan, labels=(("breed", "<b>"),)),),
        images=(Image("image/jpeg", b"\xff\x00"),),
        sections=(Section("t", ("p",), (Table("c", ("h",), (("r",),)),), (Picture(b"png", "alt", "caption"),)),),
    )
    text = data.to_json()
    assert text.isascii()
    back = json.loads(text)
    assert back["title"] == data.title
    assert back["classes"][0]["average_precision"] == 0.333333333
    assert back["classes"][0]["n_objects"] == 1234567
    assert back["classes"][0]["curve"] is None
    assert back["exemplars"][0]["width"] is None
    assert back["exemplars"][0]["height"] is None
    assert back["exemplars"][0]["labels"] == [["breed", "<b>"]]
    assert b64decode(back["images"][0]["content"]) == b"\xff\x00"
    assert b64decode(back["sections"][0]["pictures"][0]["png"]) == b"png"
    assert back["sections"][0]["tables"][0]["rows"] == [["r"]]
