#!/usr/bin/python3
"""The proxy byte for byte, between a scripted client and a scripted service: test_proxy.py DEMO_PROXY

Every case is a function; what a case gets is a started proxy and the service's listening socket. No clock decides anything: waits
have a generous limit and end when what they wait for is there.
"""

import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
import traceback

LIMIT = 30


class End:
    """One end of a connection."""

    def __init__(self, sock):
        self.sock = sock
        sock.settimeout(LIMIT)
        self.had = b""

    def send(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else data.encode())
        return self

    def more(self):
        data = self.sock.recv(1 << 16)
        self.had += data
        return data

    def head(self):
        while b"\r\n\r\n" not in self.had:
            if not self.more():
                raise AssertionError(f"the connection ended in a head: {self.had[:200]!r}")
        head, _, self.had = self.had.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        return Head(lines)

    def exactly(self, n):
        while len(self.had) < n:
            if not self.more():
                raise AssertionError(f"only {len(self.had)} of {n} bytes came")
        data, self.had = self.had[:n], self.had[n:]
        return data

    def chunked(self):
        body = b""
        while True:
            while b"\r\n" not in self.had:
                assert self.more(), "the connection ended in a chunk head"
            size, _, self.had = self.had.partition(b"\r\n")
            n = int(size, 16)
            piece = self.exactly(n + 2)
            assert piece.endswith(b"\r\n")
            if n == 0:
                return body
            body += piece[:-2]

    def rest(self):
        while self.more():
            pass
        data, self.had = self.had, b""
        return data

    def gone(self):
        """The other side closed; what it still said is returned."""
        try:
            return self.rest()
        except ConnectionResetError:
            return self.had

    def close(self):
        self.sock.close()


class Head:
    def __init__(self, lines):
        self.first = lines[0]
        self.fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]

    def all(self, name):
        return [value for key, value in self.fields if key == name.lower()]

    def get(self, name):
        found = self.all(name)
        assert len(found) < 2, f"{name} came {len(found)} times"
        return found[0] if found else None

    @property
    def status(self):
        return int(self.first.split()[1])


class Bench:
    def __init__(self, program):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.listener.settimeout(LIMIT)
        self.process = subprocess.Popen([program, str(self.listener.getsockname()[1])], stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())
        self.ends = []

    def client(self, data=None):
        end = End(socket.create_connection(("127.0.0.1", self.port)))
        self.ends.append(end)
        return end.send(data) if data is not None else end

    def service(self):
        end = End(self.listener.accept()[0])
        self.ends.append(end)
        return end

    def quiet(self):
        """True when nobody waits to be accepted."""
        self.listener.setblocking(False)
        try:
            self.listener.accept()[0].close()
            return False
        except BlockingIOError:
            return True
        finally:
            self.listener.settimeout(LIMIT)

    def exchange(self, request, answer):
        """One whole exchange: the head the service saw, the head and body the client saw."""
        client = self.client(request)
        service = self.service()
        asked = service.head()
        service.send(answer)
        service.sock.shutdown(socket.SHUT_WR)
        head = client.head()
        if head.get("transfer-encoding") == "chunked":
            body = client.chunked()
        elif head.get("content-length") is not None and request.split(b" ")[0] != b"HEAD" and head.status != 304:
            body = client.exactly(int(head.get("content-length")))
        else:
            body = b""
        client.close()
        service.close()
        return asked, head, body

    def close(self):
        for end in self.ends:
            end.close()
        self.process.terminate()
        code = self.process.wait(LIMIT)
        self.listener.close()
        assert code == 0, f"the proxy ended with {code}"

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmRSS"))


def get(path="/", *lines):
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: outside.test", *lines, "", ""]).encode()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def case_heads(b):
    asked, head, body = b.exchange(
        get("/a%2Fb?c=1", "Connection: keep-alive, X-Hop", "X-Hop: 1", "Keep-Alive: 5", "TE: trailers", "Accept: a/b", "Accept: c/d",
            "X-Forwarded-For: 9.9.9.9", "X-Forwarded-Host: evil", "X-Forwarded-Proto: gopher", "Forwarded: for=x", "X-Real-IP: 1.2.3.4",
            "Origin: http://outside.test", "Referer: http://outside.test/from?q=1", "Cookie: a=1; psbx_7420_session=s; b=2"),
        b"HTTP/1.1 201 Fine\r\nServer: s\r\nDate: now\r\nContent-Length: 2\r\nConnection: X-Gone\r\nX-Gone: 1\r\nKeep-Alive: 3\r\n"
        b"Location: http://localhost:5173/next\r\nContent-Location: //localhost:5173/x\r\nAccess-Control-Allow-Origin: http://localhost:5173\r\n"
        b"Set-Cookie: c=3; Domain=example.com; Path=/; HttpOnly\r\nSet-Cookie: psbx_7420_session=evil\r\nSet-Cookie: d=4\r\n"
        b"Strict-Transport-Security: max-age=1\r\nAlt-Svc: h3\r\nClear-Site-Data: \"cookies\"\r\nReferrer-Policy: unsafe-url\r\n\r\nhi")
    assert asked.first == "GET /a%2Fb?c=1 HTTP/1.1"
    assert asked.get("host") == "localhost:5173" and asked.all("accept") == ["a/b", "c/d"]
    assert asked.get("x-forwarded-for") == "9.9.9.9, 127.0.0.1" and asked.get("x-forwarded-host") == "localhost:5173"
    assert asked.get("x-forwarded-proto") == "http"
    assert asked.get("origin") == "http://localhost:5173" and asked.get("referer") == "http://localhost:5173/from?q=1"
    assert asked.get("cookie") == "a=1; b=2"
    for name in ("connection", "x-hop", "keep-alive", "te", "forwarded", "x-real-ip", "transfer-encoding", "content-length"):
        assert asked.get(name) is None, name
    assert not any("outside" in value for _, value in asked.fields)
    assert head.status == 201 and body == b"hi" and head.get("server") == "s" and head.get("date") == "now"
    assert head.get("location") == "http://outside.test/next" and head.get("content-location") == "http://outside.test/x"
    assert head.get("access-control-allow-origin") == "http://outside.test"
    assert head.all("set-cookie") == ["c=3; Path=/; HttpOnly", "d=4"]
    assert head.get("referrer-policy") == "same-origin"
    for name in ("x-gone", "keep-alive", "strict-transport-security", "alt-svc", "clear-site-data"):
        assert head.get(name) is None, name


def case_names_that_are_none_of_its_business(b):
    asked, _, _ = b.exchange(get("/", "Origin: http://secret.test", "Referer: http://secret.test/a"), OK)
    assert asked.get("origin") == "null" and asked.get("referer") is None
    asked, _, _ = b.exchange(get("/", "Origin: https://elsewhere.test", "Referer: https://elsewhere.test/a"), OK)
    assert asked.get("origin") == "https://elsewhere.test" and asked.get("referer") == "https://elsewhere.test/a"
    asked, _, _ = b.exchange(b"GET http://outside.test/abs?x HTTP/1.1\r\nHost: outside.test\r\n\r\n", OK)
    assert asked.first == "GET /abs?x HTTP/1.1"


def case_answers_without_a_body(b):
    _, head, body = b.exchange(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n")
    assert head.get("content-length") == "77" and body == b""
    _, head, _ = b.exchange(get(), b"HTTP/1.1 204 No\r\n\r\n")
    assert head.status == 204 and head.get("content-length") is None and head.get("transfer-encoding") is None
    _, head, _ = b.exchange(get(), b"HTTP/1.1 304 Same\r\nETag: \"x\"\r\nContent-Length: 9\r\n\r\n")
    assert head.status == 304 and head.get("etag") == '"x"'
    _, head, body = b.exchange(get(), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert head.get("content-length") == "0" and body == b""


def case_bodies_of_every_framing(b):
    _, head, body = b.exchange(get(), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n")
    assert body == b"abcde" and head.get("trailer") is None
    _, head, body = b.exchange(get(), b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
    assert body == b"until the end" and head.get("transfer-encoding") == "chunked"
    client = b.client(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n")
    service = b.service()
    service.head()
    service.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    assert client.rest().endswith(b"\r\n\r\nabc")


def case_kept_connections(b):
    client = b.client(get("/1"))
    service = b.service()
    assert service.head().first.split()[1] == "/1"
    service.send(OK)
    assert client.head().status == 200 and client.exactly(2) == b"ok"
    client.send(get("/2"))
    assert service.head().first.split()[1] == "/2"  # the same connection
    service.send(OK)
    client.head(), client.exactly(2)
    other = b.client(get("/other"))
    second = b.service()  # never that of another client
    assert second.head().first.split()[1] == "/other"
    second.send(OK)
    other.head(), other.exactly(2)
    client.close()
    assert service.gone() == b""  # it went with its client
    second.close()  # the service closes while nothing runs
    other.send(get("/again"))
    third = b.service()
    assert third.head().first.split()[1] == "/again"
    third.send(OK)
    assert other.head().status == 200
    other.exactly(2)


def case_a_stale_connection(b):
    client = b.client(get("/1"))
    service = b.service()
    service.head()
    service.send(OK)
    client.head(), client.exactly(2)
    client.send(get("/2"))
    service.head()
    service.close()  # it takes the request and says nothing: a GET may come again
    again = b.service()
    assert again.head().first.split()[1] == "/2"
    again.send(OK)
    assert client.head().status == 200
    client.exactly(2)
    client.send(b"POST /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
    again.head(), again.exactly(3)
    again.close()  # a POST may not
    assert client.head().status == 502
    assert b.quiet()
    client = b.client(get("/4"))
    first = b.service()
    first.head()
    first.close()  # nor what failed on a fresh connection
    assert client.head().status == 502 and b.quiet()


def case_uploads(b):
    data = os.urandom(3 << 20)
    for chunked in (False, True):
        client = b.client(b"POST /up HTTP/1.1\r\nHost: a\r\n" +
                          (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: %d\r\n\r\n" % len(data)))
        service = b.service()
        asked = service.head()  # before the body is there
        assert asked.get("transfer-encoding" if chunked else "content-length") == ("chunked" if chunked else str(len(data)))

        def feed():
            for at in range(0, len(data), 100_000):
                piece = data[at:at + 100_000]
                client.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if chunked:
                client.send(b"0\r\nX-Trailer: dropped\r\n\r\n")
        feeder = threading.Thread(target=feed)
        feeder.start()
        got = service.chunked() if chunked else service.exactly(len(data))
        feeder.join()
        assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
        service.send(OK)
        assert client.head().status == 200 and client.exactly(2) == b"ok"


def case_an_answer_while_the_body_comes(b):
    client = b.client(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
    service = b.service()
    service.head()
    assert service.exactly(8) == b"3\r\none\r\n"
    service.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nONE\r\n")
    assert client.head().status == 200
    assert client.exactly(8) == b"3\r\nONE\r\n"
    client.send(b"3\r\ntwo\r\n0\r\n\r\n")
    assert service.exactly(13) == b"3\r\ntwo\r\n0\r\n\r\n"
    service.send(b"3\r\nTWO\r\n0\r\n\r\n")
    assert client.chunked() == b"TWO"


def case_an_answer_before_the_body(b):
    client = b.client(b"POST /big HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nstart")
    service = b.service()
    service.head()
    service.send(b"HTTP/1.1 413 Too big\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
    service.sock.shutdown(socket.SHUT_WR)
    head = client.head()
    assert head.status == 413 and head.get("connection") == "close" and client.exactly(2) == b"no"
    client.gone()


def case_expect_continue(b):
    client = b.client(b"POST /up HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    service = b.service()
    assert service.head().get("expect") == "100-continue"
    service.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert client.head().status == 100
    client.send(b"abc")
    assert service.exactly(3) == b"abc"
    service.send(OK)
    assert client.head().status == 200
    client = b.client(b"POST /up HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    service = b.service()
    service.head()
    service.send(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")
    head = client.head()
    assert head.status == 403 and head.get("connection") == "close"
    client = b.client(b"POST /up HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    service = b.service()
    service.head()  # no opinion: the body is asked for after a while
    assert client.head().status == 100
    client.send(b"abc")
    assert service.exactly(3) == b"abc"
    service.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK)
    assert client.head().status == 200


def case_events_come_at_once(b):
    client = b.client(get("/events"))
    service = b.service()
    service.head()
    service.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    assert client.head().get("content-type") == "text/event-stream"
    for i in range(20):  # the next is sent only when this one is there
        service.send(b"data: %d\n\n" % i)
        line = b"data: %d\n\n" % i
        framed = b"%x\r\n%b\r\n" % (len(line), line)
        assert client.exactly(len(framed)) == framed
    client.close()
    assert service.gone() == b""  # a client that leaves takes its exchange along


def case_upgrade(b):
    client = b.client(get("/ws", "Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: abc", "Origin: http://outside.test"))
    service = b.service()
    asked = service.head()
    assert asked.get("connection") == "Upgrade" and asked.get("upgrade") == "websocket" and asked.get("sec-websocket-key") == "abc"
    assert asked.get("origin") == "http://localhost:5173"
    service.send(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: xyz\r\n\r\nfirst")
    head = client.head()
    assert head.status == 101 and head.get("upgrade") == "websocket" and head.get("sec-websocket-accept") == "xyz"
    assert client.exactly(5) == b"first"
    data = os.urandom(2 << 20)
    threading.Thread(target=client.send, args=(data,)).start()
    assert service.exactly(len(data)) == data
    threading.Thread(target=service.send, args=(data,)).start()
    assert client.exactly(len(data)) == data
    client.close()
    assert service.gone() == b""


def case_upgrades_that_are_none(b):
    asked, head, _ = b.exchange(get("/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: x"), OK)
    assert asked.get("upgrade") is None and asked.get("http2-settings") is None and head.status == 200
    asked, head, _ = b.exchange(get("/", "Connection: Upgrade", "Upgrade: websocket"), OK)
    assert asked.get("upgrade") == "websocket" and head.status == 200
    _, head, _ = b.exchange(get(), b"HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    assert head.status == 502


def case_hostile_services(b):
    for answer in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n",
            b"HTTP/1.1 200 OK\nContent-Length: 2\n\nab",
            b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n",
            b"HTTP/2.0 200 OK\r\n\r\n",
            b"SSH-2.0-OpenSSH_9\r\n",
            b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 101 + b"\r\n",
            b"HTTP/1.1 200 OK\r\nX: " + b"y" * 9000 + b"\r\n\r\n",
            (b"HTTP/1.1 200 OK\r\n" + b"".join(b"X%d: %b\r\n" % (i, b"y" * 7000) for i in range(12)) + b"\r\n"),
            b"HTTP/1.1 100 Continue\r\n\r\n" * 200,
            b""):
        client = b.client(get())
        service = b.service()
        service.head()
        try:
            service.send(answer)
            service.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was cut off before it had said all
        head = client.head()
        assert head.status == 502, (answer[:60], head.first)
        client.close()
        service.close()


def case_an_answer_that_breaks_off(b):
    for answer in (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
                   b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
                   b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\nzz\r\nbad\r\n0\r\n\r\n"):
        client = b.client(get())
        service = b.service()
        service.head()
        service.send(answer)
        service.sock.shutdown(socket.SHUT_WR)
        got = client.gone()
        assert b" 200 " in got and not got.endswith(b"0\r\n\r\n"), got  # nothing that looks whole
        service.close()


def case_more_than_was_announced(b):
    client = b.client(get("/1"))
    service = b.service()
    service.head()
    service.send(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    assert client.head().status == 200 and client.exactly(2) == b"ok"
    client.send(get("/2"))
    fresh = b.service()  # what came unasked is nobody's answer
    assert fresh.head().first.split()[1] == "/2"
    fresh.send(OK)
    assert client.head().status == 200 and client.exactly(2) == b"ok" and client.had == b""


def case_broken_bodies_of_clients(b):
    client = b.client(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
    service = b.service()
    service.head()
    assert b"0\r\n\r\n" not in service.gone()  # no end was made up
    assert client.head().status == 400
    client = b.client(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\nabc")
    service = b.service()
    service.head()
    client.close()
    service.gone()


def case_back_pressure(b):
    big = 256 << 20
    client = b.client(get("/big"))
    service = b.service()
    service.head()
    service.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % big)
    client.head()
    before, block, sent = b.memory(), bytes(1 << 20), 0
    service.sock.settimeout(1)
    try:
        while sent < big:
            sent += service.sock.send(block)
    except TimeoutError:
        pass
    assert sent < 64 << 20 and b.memory() - before < 16 << 20  # a client that does not read stops the service
    client.close()
    service.gone()


def case_many_at_once(b):
    def echo():
        while True:
            try:
                end = End(b.listener.accept()[0])
            except OSError:
                return
            threading.Thread(target=talk, args=(end,), daemon=True).start()

    def talk(end):
        try:
            while True:
                asked = end.head()
                path = asked.first.split()[1].encode()
                end.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))
        except (AssertionError, OSError):
            pass
    threading.Thread(target=echo, daemon=True).start()
    wrong = []

    def one(number):
        client = b.client()
        for i in range(20):
            path = f"/{number}/{i}"
            client.send(get(path))
            head = client.head()
            body = client.exactly(int(head.get("content-length")))
            if body.decode() != path:
                wrong.append((path, body))
        client.close()
    threads = [threading.Thread(target=one, args=(n,)) for n in range(40)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[:3]


def case_nothing_listens(b):
    b.listener.close()
    assert b.client(get()).head().status == 502
    b.listener = socket.create_server(("127.0.0.1", 0))


def main():
    wanted = sys.argv[2:]
    failed = 0
    cases = [(name, fn) for name, fn in globals().items() if name.startswith("case_") and (not wanted or name in wanted)]
    for name, fn in cases:
        bench = Bench(sys.argv[1])
        try:
            fn(bench)
            bench.close()
            print(f"ok      {name}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {name}", flush=True)
            traceback.print_exc(file=sys.stdout)
            bench.process.kill()
            bench.process.wait()
            time.sleep(0)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
