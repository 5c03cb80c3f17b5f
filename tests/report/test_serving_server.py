"""The server of `eesvm serve` against clients that are rude, slow, many or gone; the site behind it is a small one."""

import gc
import json
import logging
import socket
import threading
import time
import tracemalloc

import pytest

from eesvm import InputError
from eesvm.report.serving.messages import Response, json_response
from eesvm.report.serving.server import Limits, Upload, is_loopback
from helpers.serving_help import PATIENCE, read_all, running, status_of

MAX_UPLOAD = 1_000_000


class Desk:
    """A site with one page and one place for uploads, whose work can be held up."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.bodies = []

    def page(self, target):
        if target == "/large":
            return Response(bytes(50_000_000), "application/octet-stream")
        if target == "/api/secret":
            raise RuntimeError("a secret in /home/somebody")
        return Response(b"<p>hello</p>", "text/html; charset=utf-8") if target in ("/", "/api/page") else None

    def upload(self, target):
        return Upload(lambda kind: kind == "image/png", self.work) if target == "/api/detect" else None

    def work(self, body):
        self.bodies.append(body)
        assert self.gate.wait(PATIENCE)
        if body == b"explode":
            raise RuntimeError("a secret in /home/somebody")
        return json_response({"length": len(body)})


@pytest.fixture
def desk():
    return Desk()


@pytest.fixture
def server(desk):
    with running(desk, Limits(max_upload=MAX_UPLOAD)) as address:
        yield address
        assert address.upload(b"good") == (200, {"length": 4})  # whatever was done to it, it goes on


def request(server, line="GET / HTTP/1.1", *headers, host=None, body=b""):
    """The bytes of a request, with a good host unless another is wanted."""
    lines = [line, *([] if host == "" else [f"Host: {host or f'127.0.0.1:{server.port}'}"]), *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def test_the_page_and_its_headers(server):
    for method in ("GET", "HEAD"):
        status, headers, body = server.ask(method, "/")
        assert status == 200
        assert body == (b"<p>hello</p>" if method == "GET" else b"")
        assert headers["Content-Length"] == "12"
        assert headers["Content-Type"] == "text/html; charset=utf-8"
    answers = [
        server.raw(request(server)),
        server.raw(request(server, "GET /nothing HTTP/1.1")),
        server.raw(request(server, "PUT / HTTP/1.1")),
        server.raw(request(server, host="evil.example")),
        server.raw(b"nonsense\r\n\r\n"),
        server.raw(request(server, "GET /api/secret HTTP/1.1")),
    ]
    assert [status_of(answer) for answer in answers] == [200, 404, 405, 421, 400, 500]
    for answer in answers:
        head = answer.partition(b"\r\n\r\n")[0].decode()
        names = {line.partition(":")[0].lower() for line in head.split("\r\n")[1:]}
        assert "X-Content-Type-Options: nosniff" in head
        assert "Referrer-Policy: no-referrer" in head
        assert "X-Frame-Options: DENY" in head
        assert "Cross-Origin-Resource-Policy: same-origin" in head
        assert "Cache-Control: no-store" in head
        policy = next(line for line in head.split("\r\n") if line.startswith("Content-Security-Policy: "))
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert names.isdisjoint({"server", "x-powered-by", "date", "access-control-allow-origin"})


@pytest.mark.parametrize(
    "target",
    [
        "/..", "/../", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc%2fpasswd", "//etc/passwd",
        "/assets/../serve.py", "/assets/..%5c..%5cserve.py", "/assets/%2e%2e%2fserver.py", "/%00", "/api/exemplars/-1.jpg",
        "/api/exemplars/1.jpg%00", "/api/exemplars/../1.jpg", "/api/exemplars/1e9.jpg", "/?x=1", "/.", "/index.html",
        "http://127.0.0.1/", "http://evil.example/", "*", "etc/passwd", "/\\..\\..\\etc\\passwd",
    ],
)  # fmt: skip
def test_only_fixed_addresses_lead_somewhere(server, target):
    answer = server.raw(request(server, f"GET {target} HTTP/1.1"))
    assert status_of(answer) == 404
    assert answer.endswith(b'{"error":"There is nothing at this address."}')


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "PROPFIND"])
def test_other_methods_are_refused(server, method):
    answer = server.raw(request(server, f"{method} / HTTP/1.1"))
    assert status_of(answer) == 405
    assert b"Allow: GET, HEAD, POST\r\n" in answer


def test_a_method_that_an_address_does_not_take(server):
    post = server.raw(request(server, "POST / HTTP/1.1", "Content-Length: 0"))
    assert (status_of(post), b"Allow: GET, HEAD\r\n" in post) == (405, True)
    get = server.raw(request(server, "GET /api/detect HTTP/1.1"))
    assert (status_of(get), b"Allow: POST\r\n" in get) == (405, True)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example:{port}", "evil:80:{port}",
     "user@127.0.0.1", "0.0.0.0", "192.168.0.1", "2130706433", "", " "],
)  # fmt: skip
def test_names_that_are_not_ours_are_refused(server, host):
    for line in ("GET / HTTP/1.1", "POST /api/detect HTTP/1.1"):
        answer = server.raw(request(server, line, host=host.format(port=server.port)))
        assert status_of(answer) == 421


def test_our_own_names_are_accepted(server):
    for host in (
        "127.0.0.1:{port}",
        "localhost:{port}",
        "LOCALHOST:{port}",
        "[::1]:{port}",
        "localhost",
        "localhost:9",
    ):
        assert status_of(server.raw(request(server, host=host.format(port=server.port)))) == 200
    two = request(server, "GET / HTTP/1.1", "Host: evil.example")
    assert status_of(server.raw(two)) == 400


def test_pages_of_other_sites_are_refused(server, desk):
    own = f"http://127.0.0.1:{server.port}"
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": f"https://127.0.0.1:{server.port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": f"http://localhost:{server.port}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": own, "Sec_Fetch_Site": "cross-site"},
    ):
        assert server.upload(b"four", **headers)[0] == 403, headers
        assert server.ask("GET", "/api/page", **headers)[0] == 403, headers
    assert desk.bodies == []
    assert server.upload(b"four", Origin=own, Sec_Fetch_Site="same-origin")[0] == 200
    assert server.ask("GET", "/", Sec_Fetch_Site="cross-site")[0] == 200  # a link to the page may stand anywhere


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 411),
        (["Transfer-Encoding: chunked"], 411),
        (["Transfer-Encoding: gzip, chunked"], 411),
        (["Transfer-Encoding: chunked", "Content-Length: 4"], 400),
        (["Content-Length: 4", "Content-Length: 4"], 400),
        (["Content-Length: 4", "content-length: 5"], 400),
        (["Content-Length: -4"], 400),
        (["Content-Length: +4"], 400),
        (["Content-Length: 4, 4"], 400),
        (["Content-Length: 4.0"], 400),
        (["Content-Length: 0x4"], 400),
        (["Content-Length: ４"], 400),
        (["Content-Length:"], 400),
        (["Content-Length: 0"], 400),
        ([f"Content-Length: {MAX_UPLOAD + 1}"], 413),
        (["Content-Length: 999999999999999999"], 413),
        (["Content-Length: 99999999999999999999999999"], 400),
    ],
)
def test_lengths_that_are_missing_or_wrong(server, desk, headers, status):
    lines = [line.encode().decode("latin-1") for line in ("Content-Type: image/png", *headers)]
    answer = server.raw(request(server, "POST /api/detect HTTP/1.1", *lines, body=b"4\r\nfour\r\n0\r\n\r\n"))
    assert status_of(answer) == status
    assert desk.bodies == []


def test_a_body_that_is_too_large_is_not_kept(server, desk):
    body = bytes(20 * MAX_UPLOAD)
    server.upload(b"good")  # what a first upload needs is there
    tracemalloc.start()
    try:
        assert server.upload(body) == (413, {"error": "The upload is too large: 1 MB are taken here."})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MAX_UPLOAD
    assert server.upload(bytes(MAX_UPLOAD)) == (200, {"length": MAX_UPLOAD})
    assert max(map(len, desk.bodies)) == MAX_UPLOAD


@pytest.mark.parametrize(
    "kind",
    ["text/html", "multipart/form-data; boundary=x", "application/octet-stream", "image/svg+xml", "", "image/",
     "image/png, text/html", "application/x-www-form-urlencoded", "text/plain"],
)  # fmt: skip
def test_other_content_types_are_refused(server, desk, kind):
    assert server.upload(b"four", kind)[0] == 415
    assert desk.bodies == []
    assert server.upload(b"four", "IMAGE/PNG; charset=binary")[0] == 200


def test_an_upload_without_a_content_type_is_refused(server):
    answer = server.raw(request(server, "POST /api/detect HTTP/1.1", "Content-Length: 4", body=b"four"))
    assert status_of(answer) == 415
    assert b"and the request does not say what it sends: send the header Content-Type: image/jpeg" in answer


def test_what_curl_sends_is_answered_with_the_header_to_send(server):
    assert server.upload(b"four", "application/x-www-form-urlencoded") == (
        415,
        {
            "error": "An image is needed here, and the request says application/x-www-form-urlencoded: send the header "
            "Content-Type: image/jpeg, or the kind that it is (curl: -H 'Content-Type: image/jpeg')."
        },
    )


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1 \r\nHost: localhost\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: yes\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\nX: b\r\n\r\n", 400),
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", 431),
        (b"a" * 200_000, 431),
    ],
)  # fmt: skip
def test_heads_that_are_no_requests(server, head, status):
    assert status_of(server.raw(head, finish=True)) == status


def test_one_request_a_connection(server):
    answer = server.raw(request(server) + request(server))
    assert answer.count(b"HTTP/1.1 ") == 1
    smuggled = request(server, "GET / HTTP/1.1", "Content-Length: 60", body=request(server, "GET /api/page HTTP/1.1"))
    assert server.raw(smuggled).count(b"HTTP/1.1 ") == 1


def test_a_client_that_asks_before_it_sends(server):
    head = request(
        server, "POST /api/detect HTTP/1.1", "Content-Type: image/png", "Content-Length: 4", "Expect: 100-continue"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(head)
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"four")
        assert status_of(read_all(connection)) == 200


def test_errors_do_not_say_what_happened(server, caplog):
    with caplog.at_level(logging.ERROR, "eesvm"):
        status, answer = server.upload(b"explode")
        page = server.ask("GET", "/api/secret")
    expected = {"error": "Something went wrong here; the terminal of `eesvm serve` says what."}
    assert (status, answer) == (500, expected)
    assert (page[0], json.loads(page[2])) == (500, expected)
    logged = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert logged == ["a secret in /home/somebody"] * 2


def test_a_few_at_a_time_and_a_few_that_wait(desk):
    desk.gate.clear()
    with running(desk, Limits(n_running=1, n_waiting=2)) as server:
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(server.upload(b"four"))) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.server._n_uploads == 3)
        status, headers, body = server.ask("POST", "/api/detect", b"four", Content_Type="image/png")
        assert (status, headers["Retry-After"]) == (503, "2")
        assert json.loads(body) == {"error": "The server is busy with other images: try again in a moment."}
        assert server.ask("GET", "/")[0] == 200  # pages do not wait
        assert len(desk.bodies) == 1
        desk.gate.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert answers == [(200, {"length": 4})] * 3
        assert server.upload(b"good") == (200, {"length": 4})


def test_who_leaves_is_not_waited_for(desk):
    desk.gate.clear()
    with running(desk, Limits(n_running=1, n_waiting=3)) as server:
        head = request(server, "POST /api/detect HTTP/1.1", "Content-Type: image/png", "Content-Length: 4")
        connections = []
        for number in range(4):
            connections.append(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
            connections[-1].sendall(head + b"four")
            wait_until(lambda n=number: server.server._n_uploads == n + 1)
        for connection in connections:
            connection.close()
        wait_until(lambda: server.server._n_uploads == 1)  # the one at work; those in the queue are out of it
        desk.gate.set()
        wait_until(lambda: server.server._n_uploads == 0)
        assert len(desk.bodies) == 1
        assert server.upload(b"good") == (200, {"length": 4})


def test_who_leaves_in_the_middle_of_an_upload(server, desk):
    head = request(server, "POST /api/detect HTTP/1.1", "Content-Type: image/png", "Content-Length: 1000000")
    for _ in range(20):  # more than there are places in the queue
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
            connection.sendall(head + b"a beginning")
            wait_until(lambda: server.server._n_uploads == 1)
        wait_until(lambda: server.server._n_uploads == 0)
    assert desk.bodies == []


def test_who_leaves_before_the_answer_or_the_request(server):
    for data in (b"", b"GET", request(server), request(server, "GET /nothing HTTP/1.1")):
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
                connection.sendall(data)
    wait_until(lambda: not server.server._open)


def test_slow_clients_give_way(desk):
    with running(desk, Limits(n_connections=8, head_seconds=60)) as server:
        slow = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(30)]
        for connection in slow:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert server.ask("GET", "/")[0] == 200
        assert server.upload(b"good") == (200, {"length": 4})
        assert len(server.server._open) <= 8
        assert read_all(slow[0]) == b""  # the first to come was the first to be cut off
        for connection in slow:
            connection.close()


def test_slow_heads_and_bodies_have_a_deadline(desk):
    with running(desk, Limits(head_seconds=0.3, body_seconds=0.3)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
            stop = threading.Event()

            def trickle():  # each byte in time; together they are too late
                try:
                    while not stop.wait(0.05):
                        connection.sendall(b"a")
                except OSError:
                    pass

            thread = threading.Thread(target=trickle)
            thread.start()
            answer = read_all(connection)
            stop.set()
            thread.join(PATIENCE)
        assert status_of(answer) == 408
        head = request(server, "POST /api/detect HTTP/1.1", "Content-Type: image/png", "Content-Length: 100")
        assert server.raw(head + b"half") == b""
        assert server.server._n_uploads == 0
        assert server.upload(b"good") == (200, {"length": 4})


def test_who_is_refused_and_leaves_at_once(desk, caplog):
    desk.gate.clear()
    with running(desk, Limits(n_running=1, n_waiting=0)) as server:
        first = threading.Thread(target=server.upload, args=(b"four",))
        first.start()
        wait_until(lambda: server.server._n_uploads == 1)
        head = request(server, "POST /api/detect HTTP/1.1", "Content-Type: image/png", "Content-Length: 1000000")
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
                connection.sendall(head + bytes(5000))
        desk.gate.set()
        first.join(PATIENCE)
        wait_until(lambda: server.server._n_uploads == 0)
        assert server.upload(b"good") == (200, {"length": 4})
        wait_until(lambda: not server.server._open)
    gc.collect()  # asyncio tells of what nobody caught when the task goes
    assert caplog.text == ""


def test_who_does_not_read_the_answer_is_cut_off(desk):
    with running(desk, Limits(write_seconds=0.3)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
            connection.sendall(request(server, "GET /large HTTP/1.1"))
            wait_until(lambda: server.server._open)
            wait_until(lambda: not server.server._open)
            assert len(read_all(connection)) < 50_000_000
        assert server.upload(b"good") == (200, {"length": 4})


def test_connections_that_are_all_at_work_leave_no_room(desk):
    desk.gate.clear()
    with running(desk, Limits(n_connections=2)) as server:
        head = request(server, "POST /api/detect HTTP/1.1", "Content-Type: image/png", "Content-Length: 4")
        busy = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(2)]
        for connection in busy:
            connection.sendall(head + b"four")
        wait_until(lambda: server.server._n_uploads == 2)
        assert status_of(server.raw(b"")) == 503
        desk.gate.set()
        assert [status_of(read_all(connection)) for connection in busy] == [200, 200]
        for connection in busy:
            connection.close()
        assert server.upload(b"good") == (200, {"length": 4})


def test_other_machines_are_let_in_only_when_asked_for(desk):
    for host in ("0.0.0.0", "::", "192.168.0.1", "example.org", ""):
        assert not is_loopback(host)
        with pytest.raises(InputError, match="can be reached from other machines, and the page asks for no password: add"), running(desk, host=host):  # fmt: skip
            pass
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"))
    with running(desk, host="0.0.0.0", allow_outside=True) as server:
        for host, status in (("192.168.0.7", 200), ("[fe80::1]:80", 200), ("0.0.0.0", 200), ("evil.example", 421)):
            assert status_of(server.raw(request(server, host=host))) == status


def test_a_port_that_is_taken(server):
    with pytest.raises(InputError, match=f"^port {server.port} of 127.0.0.1 is in use: choose another with --port, or 0 for any that is free$"), running(Desk(), port=server.port):  # fmt: skip
        pass
    with pytest.raises(InputError, match=r"^192\.0\.2\.1 is not an address of this machine that one can listen on$"), running(Desk(), host="192.0.2.1", allow_outside=True):  # fmt: skip
        pass


def wait_until(is_so):
    for _ in range(PATIENCE * 100):
        if is_so():
            return
        time.sleep(0.01)
    assert is_so()
