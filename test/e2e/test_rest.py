"""The HTTP surface: who may ask what, sizes, the description of itself, operation, presence, and that keys never leak."""

import json
import re
import socket

import pytest
from instance import TOP

MCP = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def raw(server, text, half_close=False):
    """Sends bytes as they are; returns the status and everything that came back."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
        sock.sendall(text if isinstance(text, bytes) else text.encode())
        if half_close:
            sock.shutdown(socket.SHUT_WR)
        data = b""
        while piece := sock.recv(65536):
            data += piece
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", data)
    return int(found[1]) if found else None, data


def ask(server, method, path, host=None, body=b"", **headers):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host or f'127.0.0.1:{server.port}'}", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    status, data = raw(server, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    return status, data.split(b"\r\n\r\n", 1)[0].decode(), data.split(b"\r\n\r\n", 1)[-1]


# --- who may ask ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", ["/mcp", "/v1/boxes", "/v1/boxes/x", "/metrics"])
@pytest.mark.parametrize("authorization", [None, "Bearer", "Bearer ", "Bearer psbx_wrong", "Bearer nonsense", "Basic cHNieF86eA==", "psbx_x",
                                           "Bearer " + "x" * 5000])
def test_without_a_valid_key(server, path, authorization):
    headers = {"Authorization": authorization} if authorization else {}
    status, head, body = ask(server, "GET", path, **headers)
    assert status == 401
    challenge = re.search(r"(?im)^www-authenticate: (.*?)\r?$", head)[1]
    assert challenge.startswith("Bearer ")
    assert f'resource_metadata="http://127.0.0.1:{server.port}/.well-known/oauth-protected-resource' in challenge
    error = json.loads(body)
    assert error["error"] and error["code"]
    if authorization and "psbx_wrong" in authorization:
        assert "psbx_wrong" not in body.decode()


def test_the_scheme_is_not_case_sensitive(server, client):
    assert ask(server, "GET", "/v1/boxes", Authorization=f"bearer {client.key}")[0] == 200
    assert ask(server, "GET", "/v1/boxes", Authorization=f"BEARER   {client.key}  ")[0] == 200
    assert ask(server, "GET", "/v1/boxes", Authorization=f"Bearer {client.key}x")[0] == 401
    assert ask(server, "GET", f"/v1/boxes?access_token={client.key}")[0] == 401
    assert ask(server, "GET", "/v1/boxes", Cookie=f"key={client.key}")[0] == 401


@pytest.mark.parametrize("host, status", [
    ("127.0.0.1:{port}", 200), ("localhost:{port}", 200), ("LOCALHOST:{port}", 200), ("[::1]:{port}", 200),
    ("evil.example:{port}", 421), ("evil.example", 421), ("127.0.0.1", 421), ("127.0.0.1:1", 421), ("localhost.evil.example:{port}", 421),
    ("127.0.0.1.evil.example:{port}", 421), ("127.0.0.2:{port}", 421), ("0.0.0.0:{port}", 421),
])
def test_host(server, client, host, status):
    host = host.format(port=server.port)
    assert ask(server, "GET", "/v1/boxes", host=host, Authorization=f"Bearer {client.key}")[0] == status
    wanted = 200 if status == 200 else 421
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert ask(server, "POST", "/mcp", host=host, body=body, Authorization=f"Bearer {client.key}", **{k.replace("-", "_"): v for k, v in MCP.items()})[0] == wanted
    assert ask(server, "GET", "/v1/openapi.json", host=host)[0] == wanted
    assert ask(server, "GET", "/healthz", host=host)[0] == 200, "a probe may use any name"


@pytest.mark.parametrize("origin, status", [
    ("http://127.0.0.1:{port}", 200), ("http://localhost:{port}", 200), ("http://evil.example", 403), ("https://evil.example:{port}", 403),
    ("null", 403), ("http://127.0.0.1:1", 403), ("http://127.0.0.1", 403), ("", 403), ("http://localhost:{port}.evil.example", 403),
    ("file://", 403), ("http://127.0.0.1:{port}@evil.example", 403),
])
def test_origin(server, client, origin, status):
    origin = origin.format(port=server.port)
    key = f"Bearer {client.key}"
    assert ask(server, "GET", "/v1/boxes", Authorization=key, Origin=origin)[0] == status
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    got = ask(server, "POST", "/mcp", body=body, Authorization=key, Origin=origin, **{k.replace("-", "_"): v for k, v in MCP.items()})
    assert got[0] == status
    assert ask(server, "GET", "/v1/boxes", Origin=origin)[0] == (401 if status == 200 else 403), "another page is not even asked for a key"


@pytest.mark.parametrize("agent, status", [("a-1_B", 200), ("a" * 64, 200), ("a" * 65, 400), ("a b", 400), ("a/b", 400), ("é", 400)])
def test_agent_header(server, client, agent, status):
    got = ask(server, "GET", "/v1/boxes", Authorization=f"Bearer {client.key}", X_Psbx_Agent=agent)
    assert got[0] == status
    if status == 400:
        assert "X-Psbx-Agent" in json.loads(got[2])["error"]


# --- sizes and malformed input ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("body, code", [
    (b"", None), (b"{", -32700), (b"[]", -32600), (b"null", -32600), (b'"x"', -32600), (b"\xff\xfe", -32700), (b'{"jsonrpc":"2.0"}', -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600), (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600), (b'{"jsonrpc":"2.0","id":1,"method":"no/such"}', -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}', None), (b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no_such_tool"}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sandbox_list","arguments":[]}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sandbox_list\\u0000x"}}', -32602),
    (b"[" * 100000, -32700), (b'{"a":' * 5000 + b"1" + b"}" * 5000, -32700), (b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"ping"}', None),
])
def test_malformed_json_rpc(client, body, code):
    status, _, data = client.rest("POST", "/mcp", body, headers={**MCP, "Mcp-Session-Id": None, "MCP-Protocol-Version": None})
    assert status in (200, 400), data
    error = json.loads(data)["error"]
    assert code is None or error["code"] == code, error
    assert error["message"]
    assert client.tool("sandbox_list", {}).data is not None


def test_too_large(server, client):
    big = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"x" * (5 << 20) + b'"}}'
    status, _, data = client.rest("POST", "/mcp", big, headers=MCP)
    assert status == 413, data
    # announced: refused without reading it
    key = f"Bearer {client.key}"
    lines = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: {key}\r\nContent-Type: application/json\r\n" \
            "Accept: application/json, text/event-stream\r\nContent-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n"
    assert raw(server, lines)[0] == 413
    assert client.rest("POST", "/v1/agents/a/heartbeat", b"{" + b" " * 100000 + b"}")[0] == 413
    long_path = ask(server, "GET", "/v1/boxes/" + "x" * 100000, Authorization=key)[0]
    assert long_path in (400, 414, 431)
    assert ask(server, "GET", "/v1/boxes", Authorization=key, X_Long="x" * 200000)[0] == 431
    assert ask(server, "GET", "/v1/boxes/" + "x" * 300, Authorization=key)[0] == 404


@pytest.mark.parametrize("text, status", [
    ("GET /v1/boxes\r\n\r\n", 400), ("GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n", 400), ("GET / HTTP/1.1\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400), ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400), ("GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
    ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400), ("\x16\x03\x01\x02\x00\x01", 400), ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
])
def test_malformed_http(server, text, status):
    assert raw(server, text, half_close=True)[0] == status
    assert server.get("/healthz")[0] == 200


def test_unknown_addresses_and_methods(client):
    for method, path, status, allow in (
            ("GET", "/v1/nothing", 404, None), ("GET", "/nothing", 404, None), ("POST", "/v1/boxes", 405, "GET"), ("DELETE", "/v1/boxes/x", 405, "GET"),
            ("GET", "/v1/boxes/x/sync", 405, "POST"), ("GET", "/v1/boxes/x/y/z", 404, None),
            ("PUT", "/v1/agents/a/leave", 405, "POST"), ("GET", "/v1/boxes/nosuchbox1", 404, None), ("POST", "/v1/boxes//sync?dest=d", 404, None),
            ("GET", "/v1/boxes/%2e%2e", 404, None), ("GET", "/../v1/boxes", 404, None)):
        got, headers, body = client.rest(method, path)
        assert got == status or (path.startswith("/..") and got == 400), (method, path, got)
        error = json.loads(body)
        assert error["error"] and error["code"]
        if allow:
            assert headers["allow"] == allow


# --- presence ---------------------------------------------------------------------------------------------------------
def test_presence(client):
    assert client.rest("POST", "/v1/agents/some-agent/heartbeat", {"client": "x/1"})[0] == 200
    assert client.rest("POST", "/v1/agents/some-agent/heartbeat")[0] == 200
    assert client.rest("POST", "/v1/agents/some-agent/leave", {})[0] == 200
    assert client.rest("POST", "/v1/agents/never-seen/leave")[0] == 200
    for path, body in (("a%20b/heartbeat", {}), ("a" * 65 + "/heartbeat", {}), ("a/heartbeat", b"not json"), ("a/heartbeat", b"[1]"),
                       ("a/heartbeat", {"client": 7}), ("a/leave", b"\xff"), ("%C3%A9/leave", {})):
        status, _, answer = client.rest("POST", f"/v1/agents/{path}", body)
        assert status == 400, (path, body, answer)
        assert json.loads(answer)["error"]


# --- what it says of itself -------------------------------------------------------------------------------------------
def test_openapi_lists_every_route(client):
    status, headers, body = client.rest("GET", "/v1/openapi.json", headers={"Authorization": None})
    assert status == 200 and headers["content-type"].startswith("application/json")
    document = json.loads(body)
    assert document["openapi"].startswith("3.")
    known = {(method.upper(), re.sub(r"\{[^}]+\}", "*", path)) for path, item in document["paths"].items() for method in item}
    source = (TOP / "src" / "control" / "rest.c").read_text()
    routes = set(re.findall(r'\{ "([A-Z]+)", "(/v1/[^"]*)", rest_', source))
    assert len(routes) >= 7
    assert routes <= known, routes - known
    assert {path for _, path in known} >= {"/healthz", "/readyz", "/metrics"}
    for item in document["paths"].values():
        for operation in item.values():
            assert operation["responses"] and (operation.get("summary") or operation.get("description"))


def test_operation(server, client):
    assert server.get("/healthz") == (200, b'{"ok":true}')
    status, body = server.get("/readyz")
    assert status == 200 and json.loads(body)["ready"] is True
    assert client.rest("HEAD", "/healthz")[2] == b""
    status, headers, body = client.rest("GET", "/metrics")
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    names = set()
    for line in body.decode().splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) psbx_\w+ .+|psbx_\w+ -?[0-9.e+-]+", line), line
        if not line.startswith("#"):
            names.add(line.split()[0])
    assert {"psbx_uptime_seconds", "psbx_boxes_running", "psbx_execs_total", "psbx_http_requests_total", "psbx_mcp_calls_total"} <= names


def test_boxes_over_rest(client, box):
    status, _, body = client.rest("GET", "/v1/boxes")
    row = next(row for row in json.loads(body)["boxes"] if row["id"] == box)
    status, _, body = client.rest("GET", f"/v1/boxes/{box}")
    assert status == 200
    assert json.loads(body)["id"] == row["id"] and row["status"] == "running"


def test_security_headers(client):
    for path in ("/", "/v1/openapi.json", "/v1/boxes", "/healthz"):
        headers = client.rest("GET", path)[1]
        assert headers["x-content-type-options"] == "nosniff", path
    assert "frame-ancestors 'none'" in client.rest("GET", "/")[1]["content-security-policy"]


# --- keys never leak --------------------------------------------------------------------------------------------------
def test_no_key_is_ever_written_down(new_server):
    """The key is sent wherever one can be sent, right and wrong; afterwards no file of the server and no answer holds it."""
    server = new_server(log_level="debug")
    client = server.client(agent="leak-check")
    box = client.start(size="small")
    secret = client.key.removeprefix("psbx_")
    answers = []
    for method, path, headers in (
            ("GET", "/v1/boxes", {"Authorization": f"Bearer {client.key}x"}), ("GET", "/v1/boxes", {"Authorization": f"Basic {client.key}"}),
            ("GET", f"/v1/{client.key}", {}), ("GET", f"/v1/boxes?key={client.key}", {"Authorization": None}), ("GET", "/v1/boxes", {"X-Psbx-Client": "c"}),
            ("POST", "/mcp", {**MCP, "Authorization": f"bearer {client.key}"}), ("POST", f"/v1/boxes/{box}/sync?dest=..", {}),
            ("GET", "/v1/boxes", {"Origin": "http://evil.example"}), ("GET", "/v1/boxes", {"Host": "evil.example"})):
        got = client.rest(method, path, b"{" if method == "POST" else None, headers=headers)
        answers.append((path, got[2]))
    client.exec(box, "env; cat /proc/1/environ | tr '\\0' '\\n'; cat /proc/1/cmdline")
    answers.append(("env", client.exec(box, "env; cat /proc/*/environ 2>/dev/null").text.encode()))
    client.tool("sandbox_get", {"id": box, "path": "/etc/shadow"})
    for _ in range(2):
        client.stop(box)
    server.stop()
    for path, answer in answers:
        assert secret.encode() not in answer or secret in path, path
    looked = 0
    for path in server.base.rglob("*"):
        if path.is_file() and path.stat().st_size < 1 << 28:
            looked += 1
            assert secret.encode() not in path.read_bytes(), f"the key is in {path}"
    assert looked >= 3
    assert (server.state / "state.db").stat().st_mode & 0o077 == 0
