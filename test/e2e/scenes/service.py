"""A service to run in a box: whatever a browser can ask of one, and some answers that no honest service gives.

    python3 service.py PORT NAME
"""

import base64
import hashlib
import json
import socket
import socketserver
import struct
import sys
import time

PORT, NAME = int(sys.argv[1]), sys.argv[2]
BLOCK = bytes(range(256)) * 256

HOSTILE = {
    "cl-te": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two-lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "huge-header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70000 + b"\r\n\r\n",
    "bare-lf": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "no-http": b"SSH-2.0-box\r\n",
    "nothing": b"",
    "bad-chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n",
    "short": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this",
    "more": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale",
    "switch": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
}


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while self.one():
            pass

    def one(self):
        line = self.rfile.readline(65536).decode()
        if not line:
            return False
        self.method, self.target, _ = line.split(" ", 2)
        self.fields = []
        while True:
            field = self.rfile.readline(65536).decode().rstrip("\r\n")
            if not field:
                break
            name, _, value = field.partition(":")
            self.fields.append((name.lower(), value.strip()))
        path = self.target.partition("?")[0].strip("/").split("/")
        return getattr(self, "do_" + path[0].replace("-", "_"), self.do_)(*path[1:]) is not False

    def get(self, name):
        return next((value for key, value in self.fields if key == name), None)

    def answer(self, body=b"", status="200 OK", *lines):
        body = body if isinstance(body, bytes) else body.encode()
        self.wfile.write("\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines, "", ""]).encode() + body)

    def body(self):
        if self.get("transfer-encoding") == "chunked":
            while True:
                n = int(self.rfile.readline(), 16)
                data = self.rfile.read(n)
                self.rfile.readline()
                if not n:
                    return
                yield data
        left = int(self.get("content-length") or 0)
        while left:
            data = self.rfile.read(min(left, 1 << 16))
            if not data:
                raise ConnectionError
            left -= len(data)
            yield data

    def do_(self, *_):
        self.answer(f"<!doctype html><title>{NAME}</title><h1>{NAME}</h1>", "200 OK", "Content-Type: text/html")

    def do_head(self, *_):
        for _ in self.body():
            pass
        self.answer(json.dumps({"line": [self.method, self.target], "fields": self.fields, "name": NAME}), "200 OK", "Content-Type: application/json",
                    f"Access-Control-Allow-Origin: {self.get('origin') or 'none'}", "Referrer-Policy: unsafe-url")

    def do_cookie(self, value, *_):
        self.answer("set", "200 OK", f"Set-Cookie: who={value}; Path=/; Domain=localhost", f"Set-Cookie: psbx_{value}_session=stolen; Path=/",
                    "Content-Type: text/plain")

    def do_redirect(self, *_):
        self.answer("", "302 Found", f"Location: http://localhost:{PORT}/after?x=1")

    def do_redirect_to(self, name, port, *_):
        self.answer("", "302 Found", f"Location: http://{name}:{port}/there")

    def do_upload(self, *_):
        digest, total = hashlib.sha256(), 0
        for data in self.body():
            digest.update(data)
            total += len(data)
        self.answer(json.dumps({"sha256": digest.hexdigest(), "bytes": total}))

    def do_download(self, blocks, *_):
        n = int(blocks)
        self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Length: {n * len(BLOCK)}\r\n\r\n".encode())
        for _ in range(n):
            self.wfile.write(BLOCK)

    def do_events(self, *_):
        """An event for each line that another request sends to /tell."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        at = 0
        while True:
            while at < len(self.server.told):
                self.wfile.write(f"data: {self.server.told[at]}\n\n".encode())
                at += 1
            time.sleep(0.005)
            if self.server.told[-1:] == ["end"]:
                return False

    def do_tell(self, word, *_):
        self.server.told.append(word)
        self.answer("told")

    def do_stuck(self, *_):
        """Sends for ever and notes when the other side is gone."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        try:
            while True:
                self.wfile.write(BLOCK)
        except OSError:
            self.server.told.append("gone")
        return False

    def do_told(self, *_):
        self.answer(json.dumps(self.server.told))

    def do_hostile(self, kind, *_):
        self.wfile.write(HOSTILE[kind])
        return False

    def do_die(self, *_):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + BLOCK)
        self.wfile.flush()
        import os
        os._exit(1)

    def do_ws(self, *_):
        """A WebSocket (RFC 6455) that echoes."""
        if not self.get("upgrade"):
            return self.answer("no", "426 Upgrade Required")
        accept = base64.b64encode(hashlib.sha1((self.get("sec-websocket-key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept +
                         f"\r\nX-Origin: {self.get('origin')}\r\n\r\n".encode())
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                self.server.told.append("ws gone")
                return False
            n = head[1] & 127
            if n == 126:
                n = struct.unpack(">H", self.rfile.read(2))[0]
            elif n == 127:
                n = struct.unpack(">Q", self.rfile.read(8))[0]
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(n)))
            if head[0] & 15 == 8:
                self.wfile.write(b"\x88\x00")
                return False
            size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else b"\x7f" + struct.pack(">Q", n)
            self.wfile.write(bytes([0x80 | head[0] & 15]) + size + data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512
    told = []


Server(("127.0.0.1", PORT), Handler).serve_forever()
