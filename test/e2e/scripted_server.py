"""A small HTTP and MCP server for the tests of the adapter, told by the test what to do with each call.

It plays a server that misbehaves (ends streams, goes silent, refuses, vanishes), and keeps what it was sent. sync, plan
and prune work on a folder of this machine, by an implementation of its own that knows nothing of the adapter's code.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import shutil
import socket
import struct
import tarfile
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOLS = [
    {"name": "sandbox_list", "description": "the boxes", "inputSchema": {"type": "object"}},
    {"name": "sandbox_exec", "description": "runs a command", "inputSchema": {"type": "object"}},
    {"name": "sandbox_sync", "description": "sync", "inputSchema": {"type": "object"}},
    {"name": "sandbox_pull", "description": "pull", "inputSchema": {"type": "object"}},
]


def text_result(value, is_error=False):
    text = value if isinstance(value, str) else json.dumps(value)
    result = {"content": [{"type": "text", "text": text}]}
    if not isinstance(value, str):
        result["structuredContent"] = value
    if is_error:
        result["isError"] = True
    return result


class ToolCall:
    """One tools/call while it is being answered."""

    def __init__(self, handler, message):
        self.handler = handler
        self.message = message
        self.id = message["id"]
        self.params = message["params"]
        self.args = message["params"].get("arguments") or {}
        self.token = (message["params"].get("_meta") or {}).get("progressToken")
        self.headers = handler.headers
        self.streaming = False

    def json(self, result):
        self.handler.answer_json(200, {"jsonrpc": "2.0", "id": self.id, "result": result})

    def error(self, code, message):
        self.handler.answer_json(200, {"jsonrpc": "2.0", "id": self.id, "error": {"code": code, "message": message}})

    def status(self, status, body=None, **headers):
        self.handler.answer_json(status, body or {"error": "scripted", "code": "scripted"}, headers)

    def stream(self):
        """Opens the event stream of the answer (or, on a GET, of what is left of it)."""
        self.handler.send_response(200)
        self.handler.send_header("Content-Type", "text/event-stream")
        self.handler.send_header("Transfer-Encoding", "chunked")
        self.handler.end_headers()
        self.streaming = True

    def raw(self, data):
        if isinstance(data, str):
            data = data.encode()
        self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.handler.wfile.flush()

    def event(self, message, event_id=None):
        self.raw((f"id: {event_id}\n" if event_id else "") + "event: message\ndata: " + json.dumps(message) + "\n\n")

    def prime(self, event_id, retry=None):
        """The event without data by which a stream can be taken up again."""
        self.raw((f"retry: {retry}\n" if retry is not None else "") + f"id: {event_id}\ndata: \n\n")

    def comment(self):
        self.raw(": here\n\n")

    def progress(self, value, **more):
        self.event({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": self.token, "progress": value, **more}})

    def say(self, text):
        self.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": text}})

    def result(self, result):
        self.event({"jsonrpc": "2.0", "id": self.id, "result": result})

    def end(self):
        self.handler.wfile.write(b"0\r\n\r\n")
        self.handler.wfile.flush()

    def drop(self):
        """Breaks the connection, as a server that died does."""
        self.handler.reset()

    def gone(self, timeout=10):
        """Waits until the caller has closed the connection."""
        sock = self.handler.connection
        sock.settimeout(timeout)
        try:
            return sock.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "scripted"

    def log_message(self, *_):
        pass

    @property
    def script(self):
        return self.server.script

    def reset(self):
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.wfile.flush()
        self.connection.close()
        self.rfile = io.BytesIO()
        self.wfile = io.BytesIO()

    def answer_json(self, status, value, headers=None):
        self.answer(status, "application/json", json.dumps(value).encode(), headers)

    def answer(self, status, kind, data, headers=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(data)

    def body_pieces(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                piece = self.rfile.read(size)
                self.rfile.readline()
                if size == 0:
                    return
                yield piece
        else:
            yield self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_POST(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        parts = [urllib.parse.unquote(p) for p in url.path.split("/")[1:]]
        with self.script.lock:
            self.script.seen.append((url.path, dict(self.headers.items())))
        if url.path in self.script.routes:
            self.script.routes[url.path](self, query)
        elif url.path == "/mcp":
            self.do_mcp(json.loads(b"".join(self.body_pieces())))
        elif parts[:2] == ["v1", "agents"]:
            body = b"".join(self.body_pieces())
            self.script.beats.append((parts[2], parts[3], body))
            self.answer_json(200, {"ok": True})
        elif parts[:2] == ["v1", "boxes"]:
            refusal = self.script.refusal(self)
            if refusal:
                b"".join(self.body_pieces())
                self.answer_json(*refusal)
            else:
                self.do_box(parts[2], parts[3], query)
        else:
            self.answer_json(404, {"error": "no such route", "code": "no_route"})

    def do_GET(self):
        path = urllib.parse.urlsplit(self.path).path
        with self.script.lock:
            self.script.seen.append((path, dict(self.headers.items())))
        serve = self.script.blobs.get(path)
        if path in self.script.routes:
            self.script.routes[path](self, dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query)))
        elif path == "/mcp" and self.script.on_resume:
            message = {"id": None, "params": {}}
            self.script.on_resume(ToolCall(self, message), self.headers.get("Last-Event-ID"))
        elif serve is None:
            self.answer_json(404, {"error": "no such blob", "code": "not_found"})
        elif callable(serve):
            serve(self)
        else:
            self.answer(200, "application/octet-stream", serve)

    def do_DELETE(self):
        self.script.deleted.append((self.path, self.headers.get("Mcp-Session-Id")))
        self.answer(200, "text/plain", b"")

    # --- MCP ----------------------------------------------------------------------------------------------
    def do_mcp(self, message):
        script = self.script
        script.messages.append(message)
        method = message.get("method")
        refusal = script.refusal(self, message)
        if refusal:
            self.answer_json(*refusal)
        elif script.modern:
            self.do_modern(message)
        elif method == "initialize":
            headers = {}
            if script.sessions:
                script.session = f"session-{len(script.messages)}"
                headers["Mcp-Session-Id"] = script.session
            self.answer_json(200, {"jsonrpc": "2.0", "id": message["id"], "result": {
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "scripted", "version": "1"}}}, headers)
        elif script.sessions and self.headers.get("Mcp-Session-Id") != script.session:
            self.answer_json(404, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no such session"}})
        elif "id" not in message or "method" not in message:
            self.answer(202, "text/plain", b"")
        elif method == "tools/list":
            if script.list_status != 200:
                self.answer_json(script.list_status, {"error": "scripted", "code": "scripted"})
            else:
                self.answer_json(200, {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": script.tools}})
        elif method == "tools/call":
            name = message["params"]["name"]
            act = script.on_tool.get(name)
            script.calls.append(message["params"])
            call = ToolCall(self, message)
            if act is None:
                call.error(-32602, f"Unknown tool: {name}")
            else:
                act(call)
        else:
            self.answer_json(200, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})

    def do_modern(self, message):
        """A server of 2026-07-28 and of nothing else."""
        script = self.script
        meta = message.get("params", {}).get("_meta", {})
        version = meta.get("io.modelcontextprotocol/protocolVersion")

        def error(status, code, text):
            self.answer_json(status, {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": code, "message": text}})

        def result(value):
            self.answer_json(200, {"jsonrpc": "2.0", "id": message["id"], "result": {
                "resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted"}}, **value}})

        method = message.get("method")
        if not version or "io.modelcontextprotocol/clientCapabilities" not in meta:
            error(404 if method == "initialize" else 400, -32601 if method == "initialize" else -32602, "no _meta")
        elif self.headers.get("MCP-Protocol-Version") != version or self.headers.get("Mcp-Method") != method:
            error(400, -32020, "headers do not say what the body says")
        elif method == "tools/call" and self.headers.get("Mcp-Name") != message["params"]["name"]:
            error(400, -32020, "Mcp-Name")
        elif method == "server/discover":
            result({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"})
        elif method == "tools/list":
            result({"tools": script.tools, "ttlMs": 1000, "cacheScope": "private"})
        elif method == "tools/call" and message["params"]["name"] in script.on_tool:
            script.calls.append(message["params"])
            script.on_tool[message["params"]["name"]](ToolCall(self, message))
        else:
            error(404, -32601, "Method not found")

    # --- sync ---------------------------------------------------------------------------------------------
    def do_box(self, box, op, query):
        script = self.script
        act = script.on_box.get(op)
        if act and act(self, query):
            return
        dest = query.get("dest", "")
        root = os.path.join(script.work, dest) if dest else script.work
        script.rest.append((op, dict(query)))
        if op == "plan":
            self.answer(200, "application/octet-stream", answer_plan(root, b"".join(self.body_pieces()), script.extras_max))
        elif op == "sync":
            body = b"".join(self.body_pieces())
            script.uploads.append(body)
            self.answer_json(200, {"ok": True, "dest": dest, **extract(root, body, "single" in query)})
        elif op == "prune":
            self.answer_json(200, prune(root, b"".join(self.body_pieces())))
        else:
            self.answer_json(404, {"error": "no such route", "code": "no_route"})


def kind_of(path):
    """(kind, size, digest) of a file or link as the plan has it, or None."""
    if os.path.islink(path):
        data, kind = os.readlink(path), 2
    elif os.path.isfile(path):
        with open(path, "rb") as file:
            data = file.read()
        kind = 1 if os.stat(path).st_mode & 0o111 else 0
    else:
        return None
    return kind, len(data), hashlib.blake2b(data, digest_size=32).digest()


def parse_plan(body):
    at, entries = 0, []
    while at < len(body):
        kind, size = struct.unpack_from("<BQ", body, at)
        digest = body[at + 9:at + 41]
        (length,) = struct.unpack_from("<H", body, at + 41)
        entries.append((body[at + 43:at + 43 + length], kind, size, digest))
        at += 43 + length
    assert [e[0] for e in entries] == sorted(e[0] for e in entries), "the plan is not sorted"
    assert len({e[0] for e in entries}) == len(entries), "a path is planned twice"
    return entries


def files_below(root):
    found = []
    for folder, dirs, names in os.walk(os.fsencode(root)):
        dirs[:] = [d for d in dirs if d not in (b".git", b"node_modules") and not os.path.islink(os.path.join(folder, d))]
        links = [d for d in os.listdir(folder) if os.path.islink(os.path.join(folder, d)) and os.path.isdir(os.path.join(folder, d))]
        for name in names + [x for x in links if x not in names]:
            found.append(os.path.relpath(os.path.join(folder, name), os.fsencode(root)))
    return sorted(found)


def answer_plan(root, body, extras_max):
    entries = parse_plan(body)
    base = os.fsencode(root)
    exists = os.path.lexists(base)
    is_file = os.path.isfile(base)
    need = [i for i, (path, kind, size, digest) in enumerate(entries)
            if is_file or kind_of(os.path.join(base, path)) != (kind, size, digest)]
    planned = {e[0] for e in entries}
    extras = [] if is_file or not exists else [p for p in files_below(root) if p not in planned]
    header = json.dumps({"exists": exists, "isFile": is_file, "entries": len(entries), "need": len(need),
                         "extraCount": len(extras), "extrasPartial": len(extras) > extras_max,
                         "extras": [base64.b64encode(p).decode() for p in extras[:extras_max]]}).encode()
    return struct.pack("<I", len(header)) + header + b"".join(struct.pack("<I", i) for i in need)


def clear_way(path):
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    elif os.path.isdir(path):
        shutil.rmtree(path)


def extract(root, body, single):
    if body[:2] == b"\x1f\x8b":
        body = gzip.decompress(body)
    base, changed, count, size = os.fsencode(root), 0, 0, 0
    with tarfile.open(fileobj=io.BytesIO(body), mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
        for member in tar:
            target = base if single else os.path.join(base, os.fsencode(member.name))
            if member.isdir():
                os.makedirs(target, exist_ok=True)
                continue
            parent = os.path.dirname(target)
            while parent.startswith(base) and len(parent) > len(base):
                if os.path.lexists(parent) and (os.path.islink(parent) or not os.path.isdir(parent)):
                    os.unlink(parent)
                parent = os.path.dirname(parent)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            before = kind_of(target)
            if member.issym():
                clear_way(target)
                os.symlink(os.fsencode(member.linkname), target)
            else:
                data = tar.extractfile(member).read()
                clear_way(target)
                with open(target, "wb") as file:
                    file.write(data)
                os.chmod(target, member.mode & 0o777)
                size += len(data)
            count += 1
            changed += before != kind_of(target)
    return {"changed": changed, "files": count, "bytes": size, "refused": []}


def prune(root, body):
    pruned, failed = 0, []
    for path in body.split(b"\0"):
        if not path:
            continue
        full = os.path.join(os.fsencode(root), path)
        try:
            os.unlink(full)
            pruned += 1
        except OSError as error:
            failed.append(f"{os.fsdecode(path)}: {error.strerror}")
        parent = os.path.dirname(full)
        while parent != os.fsencode(root) and os.path.isdir(parent) and not os.listdir(parent):
            os.rmdir(parent)
            parent = os.path.dirname(parent)
    return {"pruned": pruned, "failed": failed}


class ScriptedServer:
    """Use as a context manager. The fields below may be changed at any time."""

    def __init__(self, work):
        self.work = str(work)
        self.lock = threading.Lock()
        self.key = "psbx_scripted"
        self.sessions = False
        self.session = None
        self.tools = list(TOOLS)
        self.list_status = 200
        self.extras_max = 2000
        self.on_tool = {}   # name -> function(ToolCall)
        self.on_box = {}    # plan, sync, prune -> function(handler, query), true when it has answered
        self.blobs = {}     # path -> bytes or function(handler)
        self.routes = {}    # path -> function(handler, query)
        self.on_resume = None  # function(ToolCall, last event id), for GET /mcp
        self.modern = False    # a server of 2026-07-28
        self.deleted = []
        self.seen, self.messages, self.calls, self.beats, self.rest, self.uploads = [], [], [], [], [], []
        self.httpd = None
        self.port = 0

    def start(self):
        for left in range(100, -1, -1):  # on a busy machine the port may be some other program's for a moment
            try:
                self.httpd = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
                break
            except OSError:
                if not left:
                    raise
                time.sleep(0.05)
        self.httpd.daemon_threads = True
        self.httpd.handle_error = lambda *_: None
        self.httpd.script = self
        self.port = self.httpd.server_address[1]
        threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def refusal(self, handler, message=None):
        """None, or status, body and headers of a refusal: who may call."""
        if self.key and handler.headers.get("Authorization") != f"Bearer {self.key}":
            return 401, {"error": "no such key", "code": "unauthorized"}, {}
        return None

    def stop(self):
        self.httpd.shutdown()
        self.httpd.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def env(self, **more):
        return {"PARALLELSANDBOX_MCP_URL": self.url + "/mcp", "PARALLELSANDBOX_API_KEY": self.key or "psbx_any", **more}

    def wait(self, condition, timeout=5):
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            if condition():
                return True
            time.sleep(0.01)
        return False

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


if __name__ == "__main__":  # for trying things by hand, and for the wire probe
    import sys
    server = ScriptedServer(sys.argv[1] if len(sys.argv) > 1 else "/tmp/scripted-work")
    os.makedirs(server.work, exist_ok=True)
    server.port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    server.start()
    print(server.url, flush=True)
    threading.Event().wait()
