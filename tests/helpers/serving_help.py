"""A server on 127.0.0.1 in a thread, and ways to talk to it, that the tests of `eesvm serve` share."""

import asyncio
import http.client
import json
import socket
import threading
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cache

from eesvm.report.serving.inference import Inference
from eesvm.report.serving.server import Limits, Server
from helpers.detector_scenes import quick_options, scenes, trained

PATIENCE = 20  # seconds after which a test gives up waiting


@dataclass(frozen=True)
class Running:
    """Where a server listens."""

    server: Server
    url: str
    port: int

    def raw(self, data, finish=False):
        """Everything that comes back for these bytes, until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            try:
                connection.sendall(data)
                if finish:
                    connection.shutdown(socket.SHUT_WR)
            except ConnectionError:
                pass  # it has answered already; the answer is still to be read
            return read_all(connection)

    def ask(self, method, target, body=None, **headers):
        """(status, headers, body) of one request; underscores in names of headers stand for dashes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, target, body, names)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def upload(self, body, content_type="image/png", target="/api/detect", **headers):
        """(status, JSON) of an upload."""
        status, _, content = self.ask("POST", target, body, Content_Type=content_type, **headers)
        return status, json.loads(content)


@contextmanager
def running(site, limits=None, **arguments):
    """A server for `site`, until the block ends."""
    server = Server(limits or Limits(), **arguments)
    started, found = threading.Event(), {}

    def ready(url):
        found["url"] = url
        started.set()

    async def serve():
        found["loop"], found["task"] = asyncio.get_running_loop(), asyncio.current_task()
        await server.run(site, ready)

    def run():
        try:
            asyncio.run(serve())
        except asyncio.CancelledError:
            pass
        except Exception as error:
            found["error"] = error
        finally:
            started.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(PATIENCE)
    if "error" in found:
        raise found["error"]
    try:
        yield Running(server, found["url"], int(found["url"].rsplit(":", 1)[1].rstrip("/")))
    finally:
        found["loop"].call_soon_threadsafe(found["task"].cancel)
        thread.join(PATIENCE)
        assert not thread.is_alive()


class RememberingInference(Inference):
    """Looks at equal pixels once: for tests of pages, which show the same few images many times."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._known = {}

    def _detect(self, pixels, table, with_preview):
        key = pixels.shape, pixels.tobytes(), id(table), with_preview
        if key not in self._known:
            self._known[key] = table, super()._detect(pixels, table, with_preview)  # keeps the table, and so its id
        return deepcopy(self._known[key][1])


def read_all(connection):
    """What comes until the other side closes, in whatever way it does."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def status_of(answer):
    """The status in the bytes of an answer."""
    assert answer.startswith(b"HTTP/1.1 "), answer[:80]
    return int(answer.split(b" ", 2)[1])


@cache
def quick_detector():
    """A small detector of two digits."""
    return trained(quick_options())


@cache
def scene(number=0):
    """The pixels of a test scene."""
    return scenes("test")[number].read()
