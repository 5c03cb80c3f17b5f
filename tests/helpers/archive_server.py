"""A server on this machine that hands out archives as asked: whole, cut off, or not at all."""

import hashlib
import http.server
import io
import re
import tarfile
import threading

import pytest
from PIL import Image

from eesvm.datasets import _download
from eesvm.datasets.fetch import COLLECTIONS, Archive, Collection
from helpers.dataset_files import pixels, voc_object, voc_xml


def tar_bytes(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content
                archive.addfile(info)
    return buffer.getvalue()


def part(image_id, split):
    buffer = io.BytesIO()
    Image.fromarray(pixels(400, 300)).save(buffer, "PNG")
    base = "VOCdevkit/VOC2007"
    return tar_bytes(
        [
            ("VOCdevkit", (tarfile.DIRTYPE, "")),
            (f"{base}/JPEGImages/{image_id}.png", buffer.getvalue()),
            (f"{base}/Annotations/{image_id}.xml", voc_xml(voc_object(), f"{image_id}.png", (400, 300)).encode()),
            (f"{base}/ImageSets/Main/{split}.txt", f"{image_id}\n".encode()),
            ("VOCdevkit/readme", b"left out"),
        ]
    )


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; `cuts` are numbers of bytes after which the next answers end."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cuts, self.ranges, self.ignores_range, self.codes = {}, [], [], False, []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.ranges.append(self.headers.get("Range"))
        content = server.files.get(self.path.strip("/"))
        if server.codes or content is None:
            self.send_error(server.codes.pop(0) if server.codes else 404)
            return
        start = 0
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if found and not server.ignores_range:
            start = int(found[1])
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = start + server.cuts.pop(0) if server.cuts else len(content)
        self.wfile.write(content[start:end])
        if end < len(content):
            self.close_connection = True

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(_download, "_FIRST_PAUSE", 0.001)
    server = Server()
    server.files = {"trainval.tar": part("a", "trainval"), "test.tar": part("b", "test")}
    announce(server, monkeypatch)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def announce(server, monkeypatch, files=None):
    archives = tuple(
        Archive(name.removesuffix(".tar"), name, hashlib.sha256(content).hexdigest(), len(content))
        for name, content in (files or server.files).items()
    )
    monkeypatch.setitem(COLLECTIONS, "voc2007", Collection(server.url, "VOCdevkit/VOC2007", archives))
