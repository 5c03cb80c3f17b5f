"""The server: connections, limits, and who is let in.

In: a `Site`, which knows what is at which address, and `Limits`. Out: answers over HTTP/1.1, one a connection.
One thread reads and writes all connections, so a slow or silent client costs a socket and no thread; uploads are worked
on by a few others. Every stage has a deadline for the whole of it, which a byte now and then does not extend. At most
`n_running` uploads are worked on and `n_waiting` may wait; the next is refused before its body is read, so that memory
is bounded by (n_running + n_waiting) * max_upload and what the work itself takes. Where there are too many connections,
the oldest of those that have not made a request yet is closed.
It is made for one machine and the people who sit at it.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from eesvm._support.validation import InputError
from eesvm.report.serving.messages import (
    HTTP_METHODS,
    Refusal,
    Request,
    Response,
    body_length,
    check_host,
    check_origin,
    media_type,
    parse_head,
)

_logger = logging.getLogger("eesvm")

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_MAX_HEAD = 16 * 1024  # bytes
_PIECE = 64 * 1024  # bytes read at once of what is thrown away


IMAGE_NEEDED = ("An image", "image/jpeg, or the kind that it is")
JSON_NEEDED = ("JSON", "application/json")


@dataclass(frozen=True)
class Limits:
    """What clients may take."""

    max_upload: int = 32_000_000  # bytes
    n_running: int = 2  # uploads that are worked on at once
    n_waiting: int = 8  # uploads that may wait for that
    n_connections: int = 64
    head_seconds: float = 10.0  # for the whole head of a request
    body_seconds: float = 60.0  # for the whole body
    write_seconds: float = 30.0  # for the whole answer
    linger_seconds: float = 2.0  # for a body that is refused: who is still sending would miss the answer


@dataclass(frozen=True)
class Upload:
    """What becomes of a POST: the content types that are taken, and the work, which is done in another thread."""

    accepts: Callable[[str], bool]
    work: Callable[[bytes], Response]
    needed: tuple[str, str] = IMAGE_NEEDED  # what is taken in words, and its content type, for who sends another


class Site(Protocol):
    """What is at which address; None is nothing. Both are asked in the thread that serves all connections."""

    def page(self, target: str) -> Response | None:
        """The answer to GET."""

    def upload(self, target: str) -> Upload | None:
        """What takes a POST."""


class Server:
    """Serves a site until it is told to stop.

    Parameters
    ----------
    host : an address of this machine, or "localhost".
    port : 0 is any that is free.
    allow_outside : other machines may connect; without it `host` must be a loopback address.
    """

    def __init__(
        self, limits: Limits | None = None, host: str = "127.0.0.1", port: int = 0, allow_outside: bool = False
    ) -> None:
        self.limits = limits or Limits()
        self.host, self.port = "127.0.0.1" if host == "localhost" else host, port
        self._is_outside = not is_loopback(self.host)
        if self._is_outside and not allow_outside:
            raise InputError(
                f"{host or 'this host'} can be reached from other machines, and the page asks for no password: "
                "add --allow-outside if that is meant"
            )
        self._hosts = _LOOPBACK_NAMES | {_in_url(self.host).lower()}
        self._pool = ThreadPoolExecutor(self.limits.n_running, "eesvm-serve")
        self._n_uploads = 0
        self._open: dict[asyncio.StreamWriter, bool] = {}  # every connection, and whether it may be closed for another

    async def run(self, site: Site, on_ready: Callable[[str], object]) -> None:
        """Listen, call `on_ready` with the address, and serve until this task is cancelled."""
        self._site = site
        listening = await self._listen()
        try:
            async with listening:
                on_ready(f"http://{_in_url(self.host)}:{listening.sockets[0].getsockname()[1]}/")
                await listening.serve_forever()
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _listen(self) -> asyncio.Server:
        try:
            return await asyncio.start_server(self._connected, self.host or None, self.port, limit=_MAX_HEAD)
        except (OSError, OverflowError) as error:
            raise InputError(_why_not(error, self.host, self.port)) from None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: one request, one answer."""
        writer.transport.set_write_buffer_limits(high=0)  # `drain` then waits until all of the answer is on its way
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):  # also of the deadlines
            pass  # the client has gone, or takes too long: nobody listens
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._admit(writer):
            await self._send(_busy().response(), writer)
            return
        with_body = True
        try:
            request = await self._read_head(reader)
            with_body = request.method != "HEAD"
            self._open[writer] = False
            response = await self._answer(request, reader, writer)
        except Refusal as refusal:
            await self._send(refusal.response(), writer, with_body)
            await self._linger(reader, writer)
            return
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            raise
        except Exception:
            _logger.exception("a request could not be answered")
            response = Refusal(500, "Something went wrong here; the terminal of `eesvm serve` says what.").response()
        if response is not None:
            await self._send(response, writer, with_body)

    def _admit(self, writer: asyncio.StreamWriter) -> bool:
        """Note a connection; where there are too many, the one that has kept us waiting longest is cut off."""
        if len(self._open) >= self.limits.n_connections:
            oldest = next((other for other, may_go in self._open.items() if may_go), None)
            if oldest is None:
                return False
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = True
        return True

    async def _read_head(self, reader: asyncio.StreamReader) -> Request:
        try:
            async with asyncio.timeout(self.limits.head_seconds):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise Refusal(431, "The head of the request is too long.") from None
        except TimeoutError:
            raise Refusal(408, "The request took too long to arrive.") from None
        return parse_head(head)

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Response | None:
        """The response, or None for a client that has gone."""
        check_host(request, self._hosts, self._is_outside)
        if request.method not in HTTP_METHODS:
            raise Refusal(405, "Only GET, HEAD and POST are known here.", {"Allow": ", ".join(HTTP_METHODS)})
        page, upload = self._site.page(request.target), self._site.upload(request.target)
        if page is None and upload is None:
            raise Refusal(404, "There is nothing at this address.")
        if request.target.startswith("/api/"):
            check_origin(request)
        if request.method != "POST" and page is not None:
            return page
        if request.method == "POST" and upload is not None:
            return await self._take(upload, request, reader, writer)
        allowed = "POST" if page is None else "GET, HEAD"
        raise Refusal(405, f"This address takes {allowed} only.", {"Allow": allowed})

    async def _take(
        self, upload: Upload, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Response | None:
        """Read an upload, where there is room for it, and have it worked on."""
        length = body_length(request, self.limits.max_upload)
        if not upload.accepts(media_type(request)):
            raise Refusal(415, _kind_needed(*upload.needed, media_type(request)))
        if self._n_uploads >= self.limits.n_running + self.limits.n_waiting:
            raise _busy()
        self._n_uploads += 1
        work: Future[Response] | None = None
        try:
            if request.headers.get("expect", "").lower() == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            async with asyncio.timeout(self.limits.body_seconds):
                body = await reader.readexactly(length)
            work = self._pool.submit(upload.work, body)
        finally:
            if work is None:
                self._n_uploads -= 1
        answer = asyncio.wrap_future(work)
        answer.add_done_callback(self._worked)
        return await _unless_gone(answer, work, reader)

    def _worked(self, answer: asyncio.Future[Response]) -> None:
        self._n_uploads -= 1
        if not answer.cancelled():
            answer.exception()  # has been looked at, also where the client has gone

    async def _send(self, response: Response, writer: asyncio.StreamWriter, with_body: bool = True) -> None:
        async with asyncio.timeout(self.limits.write_seconds):
            writer.write(response.encode(with_body))
            await writer.drain()

    async def _linger(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Throw away what still comes, for a while: closing under it would wipe out the answer on its way."""
        self._open[writer] = True
        if writer.can_write_eof():
            writer.write_eof()
        async with asyncio.timeout(self.limits.linger_seconds):
            while await reader.read(_PIECE):
                pass


def is_loopback(host: str) -> bool:
    """Whether an address or name can be reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _unless_gone(
    answer: asyncio.Future[Response], work: Future[Response], reader: asyncio.StreamReader
) -> Response | None:
    """The answer; None where the client leaves first, whose work is then taken out of the queue if it still waits."""
    leaving = asyncio.ensure_future(reader.read(1))
    first: set[asyncio.Future[Any]] = {answer, leaving}
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done() and (leaving.exception() is not None or not leaving.result()):
            work.cancel()
            return None
        return await asyncio.shield(answer)
    finally:
        leaving.cancel()


def _kind_needed(what: str, content_type: str, got: str) -> str:
    """Which header to send: clients such as curl name a kind of their own where they are told none."""
    kind = f"the request says {got[:60]}" if got else "the request does not say what it sends"
    first = content_type.partition(",")[0]
    return (
        f"{what} is needed here, and {kind}: send the header Content-Type: {content_type} "
        f"(curl: -H 'Content-Type: {first}')."
    )


def _busy() -> Refusal:
    return Refusal(503, "The server is busy with other images: try again in a moment.", {"Retry-After": "2"})


def _why_not(error: Exception, host: str, port: int) -> str:
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.EADDRINUSE:
        return f"port {port} of {host} is in use: choose another with --port, or 0 for any that is free"
    if code == errno.EACCES:
        return f"there is no permission to listen on port {port}: choose one from 1024 on with --port"
    return f"{host or 'this host'} is not an address of this machine that one can listen on"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
