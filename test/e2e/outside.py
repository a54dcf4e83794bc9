"""A web server outside of any box, for tests of names that lead there: says what it was asked, and speaks what browsers speak."""

import hashlib
import http.server
import json
import ssl
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def _body(self):
        """Digest and size of the request's body, read piece by piece."""
        digest, size = hashlib.sha256(), 0
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while n := int(self.rfile.readline(), 16):
                digest.update(self.rfile.read(n))
                size += n
                self.rfile.readline()
            self.rfile.readline()
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = self.rfile.read(min(left, 1 << 16))
            digest.update(piece)
            size += len(piece)
            left -= len(piece)
        return digest.hexdigest(), size

    def _json(self, **more):
        digest, size = self._body()
        text = json.dumps({"method": self.command, "path": self.path, "host": self.headers.get("Host"), "size": size, "sha256": digest,
                           "headers": dict(self.headers.items()), "connection": self.client_address[1], **more}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _stream(self, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def do_GET(self):  # the name is the base class's
        path = self.path.rsplit("/", 1)[-1]
        if path == "events":
            self._stream("text/event-stream")
            self._chunk(b"data: first\n\n")
            self.server.go_on.wait(30)
            self._chunk(b"data: second\n\n")
            self.wfile.write(b"0\r\n\r\n")
        elif path.startswith("big"):
            self._stream("application/octet-stream")
            for _ in range(int(path[3:])):
                self._chunk(b"b" * (1 << 20))
            self.wfile.write(b"0\r\n\r\n")
        elif path == "moved":
            self.send_response(302)
            self.send_header("Location", f"{self.server.origin}{self.path[:-5]}there")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path == "socket":
            self._socket()
        else:
            self._json()

    do_POST = do_PUT = do_DELETE = do_HEAD = lambda self: self._json()

    def _socket(self):
        """Changes the protocol and sends everything back."""
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", self.headers["Upgrade"])
        self.end_headers()
        self.close_connection = True
        while data := self.connection.recv(1 << 16):
            self.connection.sendall(data)


class Outside:
    def __init__(self, cert=None):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if cert:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*cert)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"{'https' if cert else 'http'}://127.0.0.1:{self.port}"
        self.server.origin = self.url
        self.server.go_on = self.go_on = threading.Event()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()
