"""What the scene tests share: a box with services of test/e2e/scenes, and a client that asks for them by host name."""

import base64
import hashlib
import http.client
import io
import json
import os
import random
import socket
import struct
import tarfile
import urllib.parse
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMIT = 60


def free_range(n):
    """n ports in a row that nobody has, below those that the kernel hands out."""
    while True:
        first = random.randrange(12000, 32000 - n)
        try:
            for port in range(first, first + n):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return first, first + n - 1
        except OSError:
            continue


def tar_of(*entries):
    """A gzip tar of (name, bytes) and of (name, path): a file or a whole folder of this machine, links kept."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        for name, what in entries:
            if isinstance(what, bytes):
                info = tarfile.TarInfo(name)
                info.size = len(what)
                tar.addfile(info, io.BytesIO(what))
            else:
                tar.add(what, name)
    return out.getvalue()


def put(client, box, dest, *entries):
    status, _, body = client.rest("POST", f"/v1/boxes/{box}/sync?dest={dest}", tar_of(*entries), timeout=600)
    assert status == 200, (status, body)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Scene:
    """One service as a browser outside knows it."""

    def __init__(self, instance, url):
        self.instance, self.url = instance, url.rstrip("/")
        self.host = urllib.parse.urlsplit(url).netloc
        self.origin = f"http://{self.host}"
        self.kept = None

    def connect(self, timeout=LIMIT):
        return http.client.HTTPConnection("127.0.0.1", self.instance.port, timeout=timeout)

    def ask(self, path="/", method="GET", body=None, headers=None, keep=False, host=None):
        connection = self.kept if keep and self.kept else self.connect()
        if keep:
            self.kept = connection
        connection.request(method, path, body=body, headers={"Host": host or self.host, **(headers or {})})
        response = connection.getresponse()
        answer = Answer(response.status, response.headers, response.read())
        if not keep:
            connection.close()
        return answer

    def raw(self):
        return socket.create_connection(("127.0.0.1", self.instance.port), timeout=LIMIT)

    def websocket(self, path="/ws", **more):
        return WebSocket(self, path, **more)


class PortScene(Scene):
    """One that has a port: entered by the address that was told, as a browser does, then asked with the cookies it gave."""

    def __init__(self, instance, url):
        super().__init__(instance, url)
        self.port = urllib.parse.urlsplit(url).port
        self.door = urllib.parse.urlsplit(url).path
        self.cookie = None

    def connect(self, timeout=LIMIT):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def raw(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)

    def enter(self, path=""):
        answer = super().ask(self.door + path)
        assert answer.status == 307, (answer.status, answer.body)
        self.cookie = "; ".join(x.split(";")[0] for x in answer.headers.get_all("Set-Cookie"))
        return answer

    def ask(self, path="/", method="GET", body=None, headers=None, **more):
        if not self.cookie:
            self.enter()
        own = (headers or {}).get("Cookie")
        return super().ask(path, method, body, {**(headers or {}), "Cookie": self.cookie + ("; " + own if own else "")}, **more)

    def bare(self, path="/", headers=None, **more):
        """Without what enter() gave."""
        return super().ask(path, headers=headers, **more)

    def websocket(self, path="/ws", **more):
        if not self.cookie:
            self.enter()
        return WebSocket(self, path, **{"cookie": self.cookie, **more})


class WebSocket:
    def __init__(self, scene, path, origin=None, cookie=None):
        self.sock = scene.raw()
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {scene.host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                          f"Sec-WebSocket-Key: {key}\r\nOrigin: {origin or scene.origin}\r\n{f'Cookie: {cookie}' + chr(13) + chr(10) if cookie else ''}\r\n".encode())
        self.had = b""
        while b"\r\n\r\n" not in self.had:
            data = self.sock.recv(65536)
            if not data:
                raise AssertionError(f"no answer: {self.had!r}")
            self.had += data
        head, _, self.had = self.had.partition(b"\r\n\r\n")
        self.head = head.decode()
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
        assert self.head.startswith("HTTP/1.1 101 ") and f"Sec-WebSocket-Accept: {accept}" in self.head, self.head

    def take(self, n):
        while len(self.had) < n:
            data = self.sock.recv(1 << 20)
            if not data:
                raise ConnectionError("the WebSocket ended")
            self.had += data
        data, self.had = self.had[:n], self.had[n:]
        return data

    def send(self, data):
        n = len(data)
        size = bytes([0x80 | n]) if n < 126 else b"\xfe" + struct.pack(">H", n) if n < 65536 else b"\xff" + struct.pack(">Q", n)
        self.sock.sendall(b"\x82" + size + bytes(4) + data)

    def receive(self):
        n = self.take(2)[1] & 127
        if n == 126:
            n = struct.unpack(">H", self.take(2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self.take(8))[0]
        return self.take(n)

    def echo(self, data):
        self.send(data)
        return self.receive()

    def close(self):
        self.sock.close()


class Box:
    """A box whose services are those of scenes/service.py, running."""

    def __init__(self, instance, client, services, run=True, scene=Scene, **more):
        self.instance, self.client = instance, client
        started = client.tool("sandbox_start", {"goal": "scenes", "services": services, **more})
        assert not started.is_error, started.text
        self.data = started.data
        self.id = self.data["id"]
        self.scenes = {s["name"]: scene(instance, s["url"]) for s in self.data["services"] if "url" in s}
        put(client, self.id, "svc", ("service.py", HERE / "scenes" / "service.py"))
        for name in run if isinstance(run, list) else [s["name"] for s in services] if run else ():
            self.serve(name)

    def target(self, name):
        return next(s["targetPort"] for s in self.data["services"] if s["name"] == name)

    def serve(self, name):
        port = self.target(name)
        answer = self.client.exec(self.id, f"python3 svc/service.py {port} {name}-{self.id}", background=True).data
        ready = self.client.tool("sandbox_procs", {"id": self.id, "action": "wait", "bgId": answer["bgId"], "until": "ready", "readyPort": port})
        assert not ready.is_error, ready.text
        return answer["bgId"]
