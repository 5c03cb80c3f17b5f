"""HTTP messages: what is accepted as a request, and what every response carries.

In: the bytes before the first empty line of a connection. Out: a `Request` that has passed the checks here, or a
`Refusal` with a status and one sentence; and the bytes of a `Response`. One request a connection: with no second one to
wait for, there is nothing that a crooked length could smuggle in.
Addresses are compared as they are sent, never decoded and never joined to a path, so `..` and `%2e` lead nowhere.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

HTTP_METHODS = ("GET", "HEAD", "POST")

_REQUEST_LINE = re.compile(r"([A-Z]{1,20}) ([!-~]{1,2000}) HTTP/1\.[01]")
_HEADER_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_SINGLE = {"host", "origin", "content-length", "content-type", "transfer-encoding", "expect", "sec-fetch-site"}

# Scripts, styles and pictures come from this server alone, and nothing may put a text into the page as HTML.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_COMMON_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}


@dataclass(frozen=True)
class Request:
    """The head of a request; names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Response:
    """What is sent back."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, with_body: bool = True) -> bytes:
        """The whole message; `with_body=False` is the answer to HEAD."""
        headers = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            **_COMMON_HEADERS,
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (self.body if with_body else b"")


class Refusal(Exception):
    """A request that is not answered with what it asks for: a status, and a sentence for people."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})

    def response(self) -> Response:
        return json_response({"error": self.sentence}, self.status, self.headers)


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`content` as JSON, which has no NaN."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "replace"), "application/json; charset=utf-8", status, headers or {})


def parse_head(head: bytes) -> Request:
    """The request in the bytes up to and including the empty line."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    found = _REQUEST_LINE.fullmatch(first)
    if found is None:
        raise Refusal(400, "This is not a request of HTTP/1.1.")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER_LINE.fullmatch(line)
        if header is None:
            raise Refusal(400, "A header of the request is malformed.")
        name = header[1].lower()
        if name in headers and name in _SINGLE:
            raise Refusal(400, f"The request has more than one {name} header.")
        headers[name] = header[2].strip(" \t")
    return Request(found[1], found[2], headers)


def check_host(request: Request, hosts: frozenset[str], any_address: bool = False) -> None:
    """Refuse names that are not ours: a page of a stranger whose name was made to lead here (DNS rebinding).

    The port is left alone, so that a forwarded one works. `any_address` accepts every numeric address, which no name
    can be made to look like.
    """
    name = re.sub(r":\d{1,5}$", "", request.headers.get("host", "")).lower()
    if name in hosts or (any_address and _is_address(name)):
        return
    raise Refusal(421, "This server does not answer to that name: use the address that `eesvm serve` has printed.")


def check_origin(request: Request) -> None:
    """Refuse what the page of another site asks for."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
    is_ours = origin is None or origin == f"http://{request.headers.get('host')}"
    if not is_ours or site not in ("same-origin", "none"):
        raise Refusal(403, "Pages of other sites may not use this server.")


def body_length(request: Request, limit: int) -> int:
    """The length of the body as the request states it."""
    text = request.headers.get("content-length")
    if "transfer-encoding" in request.headers:
        if text is not None:
            raise Refusal(400, "The request states its length in two ways.")
        raise Refusal(411, "The length of the upload must be stated: send Content-Length, not chunks.")
    if text is None:
        raise Refusal(411, "The length of the upload must be stated: Content-Length is missing.")
    if re.fullmatch(r"[0-9]{1,18}", text) is None:
        raise Refusal(400, "Content-Length must be one whole number.")
    if int(text) > limit:
        raise Refusal(413, f"The upload is too large: {limit / 1e6:,.4g} MB are taken here.")
    if int(text) == 0:
        raise Refusal(400, "The upload is empty.")
    return int(text)


def media_type(request: Request) -> str:
    """The content type without its parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
