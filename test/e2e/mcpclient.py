"""A small MCP client for the tests: over Streamable HTTP (McpClient) and over a program's stdio (StdioMcp).

It is deliberately plain: one method call is one exchange, and everything the server said on the way (progress,
messages) is kept in the reply. `open()` gives an exchange that is still running, to be read or broken by the test.
"""

import contextlib
import http.client
import itertools
import json
import os
import queue
import socket
import subprocess
import threading
import time
import urllib.parse

PROTOCOL = "2025-11-25"


class McpError(Exception):
    """A JSON-RPC error, or an HTTP answer that holds no JSON-RPC at all."""

    def __init__(self, message, code=None, status=None, body=None):
        super().__init__(message)
        self.code = code
        self.status = status
        self.body = body


class ToolResult:
    """What a tool call answered: `data` is the structured object, `text` all text blocks, `notices` the later ones."""

    def __init__(self, result, notifications):
        self.raw = result
        self.content = result.get("content", [])
        self.is_error = bool(result.get("isError"))
        texts = [block.get("text", "") for block in self.content if block.get("type") == "text"]
        self.text = "\n".join(texts)
        self.notices = texts[1:]
        self.data = result.get("structuredContent")
        if self.data is None and texts and not self.is_error:
            with contextlib.suppress(ValueError):
                self.data = json.loads(texts[0])
        self.notifications = notifications
        self.progress = [n["params"] for n in notifications if n.get("method") == "notifications/progress"]
        self.messages = [n["params"] for n in notifications if n.get("method") == "notifications/message"]

    def __getitem__(self, key):
        if self.is_error:
            raise AssertionError(f"the tool answered with an error: {self.text}")
        return self.data[key]

    def __repr__(self):
        return f"<ToolResult {'error ' if self.is_error else ''}{self.text[:500]}>"


class Exchange:
    """One POST or GET that is still open. Iterating gives JSON-RPC messages as they come; close() breaks it."""

    def __init__(self, connection, response):
        self.connection = connection
        self.response = response
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.streaming = "text/event-stream" in self.headers.get("content-type", "")
        self.event_ids = []
        self.comments = 0
        self.body = b""
        self.on_line = None

    def __iter__(self):
        if not self.streaming:
            self.body = self.response.read()
            if self.body:
                try:
                    yield json.loads(self.body)
                except ValueError:
                    return
            return
        data = []
        while True:
            line = self.response.readline()
            if not line:
                return
            if self.on_line:
                self.on_line(line)
            line = line.rstrip(b"\r\n")
            if not line:
                if any(data):  # an event without data only opens the stream
                    yield json.loads(b"\n".join(data))
                data = []
            elif line.startswith(b":"):
                self.comments += 1
            elif line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif line.startswith(b"id:"):
                self.event_ids.append(line[3:].strip().decode())

    def close(self):
        # shutdown, not close alone: the response object keeps the socket open otherwise
        sock = self.connection.sock or getattr(getattr(self.response.fp, "raw", None), "_sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.response.close()
        self.connection.close()


class Reply:
    def __init__(self, status, headers, message, notifications, body):
        self.status = status
        self.headers = headers
        self.message = message
        self.notifications = notifications
        self.body = body

    @property
    def result(self):
        if self.message is None:
            raise McpError(f"HTTP {self.status} without a JSON-RPC answer: {self.body[:500]!r}", status=self.status,
                           body=self.body)
        if "error" in self.message:
            error = self.message["error"]
            if isinstance(error, str):  # refused before JSON-RPC: {"error": "…", "code": "…"}
                raise McpError(f"HTTP {self.status}: {error}", code=self.message.get("code"), status=self.status)
            raise McpError(f"{error.get('code')}: {error.get('message')}", code=error.get("code"), status=self.status)
        return self.message["result"]

    @property
    def error(self):
        return (self.message or {}).get("error")


class McpClient:
    """Streamable HTTP, 2025 era. Safe to share between threads: every exchange has a connection of its own."""

    def __init__(self, url, key=None, agent=None, client="psbx-test/1", protocol=PROTOCOL, timeout=120):
        self.url = url if url.endswith("/mcp") else url.rstrip("/") + "/mcp"
        self.parts = urllib.parse.urlsplit(self.url)
        self.origin = f"{self.parts.scheme}://{self.parts.netloc}"
        self.key = key
        self.agent = agent
        self.client = client
        self.protocol = protocol
        self.timeout = timeout
        self.session = None
        self.server = None
        self._ids = itertools.count(1)
        self._idle = []
        self._lock = threading.Lock()

    # --- HTTP ---------------------------------------------------------------------------------------------
    def headers(self, extra=None):
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        if self.agent:
            headers["X-Psbx-Agent"] = self.agent
        if self.client:
            headers["X-Psbx-Client"] = self.client
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        if self.server is not None:
            headers["MCP-Protocol-Version"] = self.protocol
        for name, value in (extra or {}).items():
            if value is None:
                headers.pop(name, None)
            else:
                headers[name] = value
        return headers

    def _connect(self, timeout):
        return http.client.HTTPConnection(self.parts.hostname, self.parts.port, timeout=timeout)

    def exchange(self, method, path, body=None, headers=None, timeout=None):
        """One HTTP exchange, its answer not yet read. A connection that was kept alive is used when there is one."""
        timeout = timeout or self.timeout
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            connection.sock.settimeout(timeout)
            try:
                connection.request(method, path, body=body, headers=headers or {})
                return Exchange(connection, connection.getresponse())
            except (http.client.RemoteDisconnected, ConnectionError, BrokenPipeError):
                connection.close()  # the server had closed it meanwhile: nothing was answered
        connection = self._connect(timeout)
        connection.request(method, path, body=body, headers=headers or {})
        return Exchange(connection, connection.getresponse())

    def _keep(self, exchange):
        if exchange.response.will_close or not exchange.response.isclosed():
            exchange.close()
            return
        with self._lock:
            self._idle.append(exchange.connection)

    def close(self):
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def rest(self, method, path, body=None, headers=None, timeout=None):
        """A REST call. Returns (status, headers, bytes)."""
        send = self.headers({"Content-Type": None, "Accept": "*/*", **(headers or {})})
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            send["Content-Type"] = "application/json"
        exchange = self.exchange(method, path, body, send, timeout)
        data = exchange.response.read()
        self._keep(exchange)
        return exchange.status, exchange.headers, data

    def fetch(self, url, headers=None):
        """GET of a whole URL, without credentials (a signed download). Returns (status, headers, bytes)."""
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=self.timeout)
        try:
            connection.request("GET", parts.path + ("?" + parts.query if parts.query else ""), headers=headers or {})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    # --- JSON-RPC -----------------------------------------------------------------------------------------
    def open(self, method, params=None, request_id=None, headers=None, timeout=None):
        """Sends a request and returns the running Exchange; its `request_id` can be cancelled."""
        request_id = next(self._ids) if request_id is None else request_id
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = params
        exchange = self.exchange("POST", self.parts.path, json.dumps(message).encode(), self.headers(headers), timeout)
        exchange.request_id = request_id
        return exchange

    def request(self, method, params=None, request_id=None, headers=None, timeout=None):
        exchange = self.open(method, params, request_id, headers, timeout)
        answer, notifications = None, []
        try:
            for message in exchange:
                if message.get("id") == exchange.request_id and ("result" in message or "error" in message):
                    answer = message
                elif "method" in message:
                    notifications.append(message)
                elif answer is None:
                    answer = message  # an error with id null
        finally:
            self._keep(exchange)
        return Reply(exchange.status, exchange.headers, answer, notifications, exchange.body)

    def notify(self, method, params=None, headers=None):
        message = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        exchange = self.exchange("POST", self.parts.path, json.dumps(message).encode(), self.headers(headers))
        exchange.body = exchange.response.read()
        self._keep(exchange)
        return exchange.status

    def initialize(self, capabilities=None):
        reply = self.request("initialize", {"protocolVersion": self.protocol, "capabilities": capabilities or {},
                                            "clientInfo": {"name": "psbx-test", "version": "1"}})
        self.server = reply.result
        self.protocol = self.server["protocolVersion"]
        self.session = reply.headers.get("mcp-session-id")
        self.notify("notifications/initialized")
        return self.server

    def tools(self):
        found, cursor = [], None
        while True:
            result = self.request("tools/list", {"cursor": cursor} if cursor else None).result
            found += result["tools"]
            cursor = result.get("nextCursor")
            if cursor is None:
                return {tool["name"]: tool for tool in found}

    def tool(self, name, arguments=None, progress=None, headers=None, timeout=None):
        """Calls a tool. `progress` is the token to ask for progress with."""
        params = {"name": name, "arguments": arguments or {}}
        if progress is not None:
            params["_meta"] = {"progressToken": progress}
        reply = self.request("tools/call", params, headers=headers, timeout=timeout)
        return ToolResult(reply.result, reply.notifications)

    def cancel(self, request_id, reason="test"):
        return self.notify("notifications/cancelled", {"requestId": request_id, "reason": reason})

    # --- shorthands ---------------------------------------------------------------------------------------
    def start(self, goal="a box for a test", **arguments):
        result = self.tool("sandbox_start", {"goal": goal, **arguments})
        if result.is_error:
            raise AssertionError(result.text)
        return result.data["id"]

    def exec(self, box, cmd, note="a test command", **arguments):
        return self.tool("sandbox_exec", {"id": box, "cmd": cmd, "note": note, **arguments})

    def stop(self, box):
        return self.tool("sandbox_stop", {"id": box})


class StdioMcp:
    """A program that speaks MCP on stdin and stdout. Anything on stdout that is no JSON-RPC is kept in `stray`."""

    def __init__(self, argv, env=None, cwd=None):
        base = {name: os.environ[name] for name in ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG")
                if name in os.environ}
        self.process = subprocess.Popen(argv, cwd=cwd, env={**base, **(env or {})}, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.messages = []
        self.stray = []
        self.errors = bytearray()
        self._ids = itertools.count(1)
        self._changed = threading.Condition()
        self._ended = False
        self._readers = [threading.Thread(target=self._read, daemon=True),
                         threading.Thread(target=self._read_errors, daemon=True)]
        for reader in self._readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            try:
                message = json.loads(line)
                if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
                    raise ValueError
            except ValueError:
                self.stray.append(line)
                continue
            with self._changed:
                self.messages.append(message)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read_errors(self):
        for line in self.process.stderr:
            self.errors += line

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, condition, timeout=120):
        """The first message, also of those that came before, for which condition(message) is true."""
        deadline = time.monotonic() + timeout
        seen = 0
        with self._changed:
            while True:
                for message in self.messages[seen:]:
                    if condition(message):
                        return message
                seen = len(self.messages)
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    raise McpError(f"no such message ({'the program ended' if self._ended else f'within {timeout} s'}); "
                                   f"stderr: {self.errors.decode(errors='replace')[-2000:]}")
                self._changed.wait(left)

    def request(self, method, params=None, timeout=120, request_id=None):
        request_id = next(self._ids) if request_id is None else request_id
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = params
        self.send(message)
        answer = self.wait(lambda m: m.get("id") == request_id and ("result" in m or "error" in m), timeout)
        if "error" in answer:
            raise McpError(f"{answer['error'].get('code')}: {answer['error'].get('message')}",
                           code=answer["error"].get("code"))
        return answer["result"]

    def notify(self, method, params=None):
        self.send({"jsonrpc": "2.0", "method": method, **({"params": params} if params is not None else {})})

    def initialize(self, name="psbx-test", version="1"):
        result = self.request("initialize", {"protocolVersion": PROTOCOL, "capabilities": {},
                                             "clientInfo": {"name": name, "version": version}})
        self.notify("notifications/initialized")
        return result

    def tools(self):
        return {tool["name"]: tool for tool in self.request("tools/list")["tools"]}

    def tool(self, name, arguments=None, progress=None, timeout=300):
        params = {"name": name, "arguments": arguments or {}}
        if progress is not None:
            params["_meta"] = {"progressToken": progress}
        before = len(self.messages)
        result = self.request("tools/call", params, timeout)
        said = [m for m in self.messages[before:] if "method" in m and "id" not in m]
        return ToolResult(result, said)

    def close(self, timeout=20):
        """Closes stdin and returns the exit code."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        for reader in self._readers:
            reader.join(5)
        return code

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def gather(functions):
    """Runs functions at the same time, each in a thread; returns their results in order or raises the first error."""
    results = queue.Queue()

    def work(index, function):
        try:
            results.put((index, function(), None))
        except BaseException as error:  # handed to the caller's thread
            results.put((index, None, error))

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in enumerate(functions)]
    for thread in threads:
        thread.start()
    found = [results.get() for _ in threads]
    for _, _, error in found:
        if error is not None:
            raise error
    return [value for _, value, _ in sorted(found, key=lambda item: item[0])]
