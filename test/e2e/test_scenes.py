"""Scenes: services in boxes as a browser outside sees them, byte for byte and by name."""

import hashlib
import json
import os
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from instance import until
from mcpclient import gather
from sceneclient import Box, Scene

SERVICES = [{"name": "web", "port": 8000, "web": True}, {"name": "api", "port": 80, "targetPort": 9000}]


@pytest.fixture(scope="module")
def two(server):
    client = server.client()
    boxes = [Box(server, client, SERVICES), Box(server, client, SERVICES)]
    yield boxes
    for box in boxes:
        client.stop(box.id)


@pytest.fixture
def web(two):
    return two[0].scenes["web"]


def fields(answer, name):
    return [value for key, value in answer.json()["fields"] if key == name]


# ---------------------------------------------------------------- addresses
def test_addresses(server, two):
    client = server.client()
    a, b = two
    for box in two:
        for data in (box.data, client.tool("sandbox_status", {"id": box.id}).data,
                     next(x for x in client.tool("sandbox_list", {}).data["boxes"] if x["id"] == box.id)):
            assert data["sceneUrl"] == data["webUrl"] == data["services"][0]["url"]
            assert re.fullmatch(rf"http://web--{box.id}--[a-z2-7]{{26}}\.localhost:{server.port}/", data["sceneUrl"])
            assert data["services"][1]["url"].startswith(f"http://api--{box.id}--")
    assert a.data["sceneUrl"].split("--")[2] != b.data["sceneUrl"].split("--")[2]
    assert "sceneUrl" not in client.tool("sandbox_start", {"goal": "nothing to see"}).data


def test_which_service_is_the_web_one(server):
    client = server.client()
    long = "a-service-with-a-name-that-is-as-long-as-a-label-may-be-in-dns1"
    box = Box(server, client, [{"name": "api", "port": 9001}, {"name": long, "port": 9002, "web": True}, {"name": "xn", "port": 9003}])
    assert box.data["sceneUrl"].startswith("http://api--") and box.data["webUrl"] == box.data["services"][1]["url"]
    for name, scene in box.scenes.items():
        assert len(scene.host.split(".")[0]) <= 63
        assert scene.ask("/head").json()["name"] == f"{name}-{box.id}"
    client.stop(box.id)


def test_one_plain_page_for_all_that_is_wrong(two, web):
    label = web.host.split(".")[0]
    service, box, key = label.split("--")
    other = two[1].scenes["web"].host.split("--")[2].split(".")[0]
    wrong = [f"{service}--{box}--{'a' * 26}", f"{service}--{box}--{other}", f"{service}--nosuchbox1--{key}", f"nope--{box}--{key}",
             f"{service}--{box}--{key[:-1]}", f"{service}--{box}", f"--{box}--{key}", f"99--{box}--{key}"]
    rest = web.host.split(".", 1)[1]
    answers = [web.ask("/head", host=f"{name}.{rest}") for name in wrong]
    pages = [web.ask("/head", host=f"{name}.{rest}", headers={"Accept": "text/html"}) for name in wrong]
    assert {a.status for a in answers + pages} == {404}
    assert len({a.body for a in answers}) == 1
    assert len({re.sub(rb'nonce="[^"]*"', b"", a.body) for a in pages}) == 1 and b"nothing to see" in pages[0].body
    assert web.ask("/head", host=f"{label.upper()}.{rest}").status == 200  # host names have no case


# ---------------------------------------------------------------- what the service sees
def test_heads(web, two):
    key = web.host.split("--")[2].split(".")[0]
    seen = web.ask("/head?q=1", headers={"Origin": web.origin, "Referer": web.origin + "/page?x=1", "X-Forwarded-Host": web.host, "X-Real-IP": "1.1.1.1",
                                         "Forwarded": f"host={web.host}", "Cookie": "a=1; psbx_7420_session=secret; b=2"})
    assert seen.json()["line"] == ["GET", "/head?q=1"]
    assert fields(seen, "host") == ["localhost:8000"] and fields(seen, "origin") == ["http://localhost:8000"]
    assert fields(seen, "referer") == ["http://localhost:8000/page?x=1"]
    assert fields(seen, "x-forwarded-host") == ["localhost:8000"] and fields(seen, "x-forwarded-proto") == ["http"]
    assert fields(seen, "x-forwarded-for") == ["127.0.0.1"] and fields(seen, "cookie") == ["a=1; b=2"]
    assert key not in seen.body.decode() and two[0].id not in json.dumps(seen.json()["fields"])
    assert seen.headers["Referrer-Policy"] == "same-origin"
    assert seen.headers["Access-Control-Allow-Origin"] == web.origin


def test_services_of_a_box_know_each_other(two):
    a, b = two
    seen = a.scenes["api"].ask("/head", headers={"Origin": a.scenes["web"].origin, "Referer": a.scenes["web"].origin + "/x"})
    assert fields(seen, "host") == ["localhost:9000"] and fields(seen, "origin") == ["http://localhost:8000"]
    assert fields(seen, "referer") == ["http://localhost:8000/x"] and seen.headers["Access-Control-Allow-Origin"] == a.scenes["web"].origin
    for foreign in (b.scenes["web"].origin, a.scenes["web"].origin.replace("--" + a.id, "--" + b.id)):  # another box's key is not told
        seen = a.scenes["api"].ask("/head", headers={"Origin": foreign, "Referer": foreign + "/x"})
        assert fields(seen, "origin") == ["null"] and fields(seen, "referer") == []
    seen = a.scenes["api"].ask("/head", headers={"Origin": "https://example.com"})
    assert fields(seen, "origin") == ["https://example.com"]


def test_redirects_come_back(web, two):
    assert web.ask("/redirect").headers["Location"] == web.origin + "/after?x=1"
    api = two[0].scenes["api"].origin
    for name, port in (("localhost", 9000), ("127.0.0.1", 9000), ("api", 80)):
        assert web.ask(f"/redirect-to/{name}/{port}").headers["Location"] == api + "/there"
    assert web.ask("/redirect-to/example.com/80").headers["Location"] == "http://example.com:80/there"


def test_cookies_stay_at_their_host(two):
    for box in two:
        answer = box.scenes["web"].ask(f"/cookie/{box.id}")
        assert answer.headers.get_all("Set-Cookie") == [f"who={box.id}; Path=/"]


# ---------------------------------------------------------------- the app is out of reach
def test_a_scene_is_not_the_app(server, web):
    for path in ("/healthz", "/readyz", "/mcp", "/v1/boxes", "/v1/openapi.json", "/sign-in", "/.well-known/oauth-authorization-server", "/metrics"):
        answer = web.ask(path, headers={"Authorization": f"Bearer {server.key()}"})
        assert f"<h1>web-".encode() in answer.body, (path, answer.body[:200])
    app = Scene(server, server.url)
    key = {"Authorization": f"Bearer {server.key()}"}
    for path in ("/v1/boxes", "/mcp"):
        answer = app.ask(path, headers={**key, "Origin": web.origin})
        assert answer.status == 403 and answer.json()["code"] == "wrong_origin"
    assert app.ask("/v1/boxes", headers=key).status == 200
    assert app.ask("/v1/boxes", headers=key, host=f"rebound.localhost:{server.port}").status == 421


# ---------------------------------------------------------------- bytes
def memory(server):
    with open(f"/proc/{server.process.pid}/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmRSS"))


def test_large_bodies_both_ways(server, web):
    before = memory(server)
    size = 200 << 20
    block = os.urandom(1 << 20)
    digest = hashlib.sha256()

    def pieces():
        for _ in range(size >> 20):
            digest.update(block)
            yield block
    for headers in ({"Content-Length": str(size)}, {"Transfer-Encoding": "chunked"}):
        digest = hashlib.sha256()
        connection = web.connect()
        connection.request("POST", "/upload", body=pieces(), headers={"Host": web.host, **headers}, encode_chunked="Transfer-Encoding" in headers)
        answer = json.loads(connection.getresponse().read())
        assert answer == {"sha256": digest.hexdigest(), "bytes": size}
        connection.close()
    blocks = size >> 16
    answer = web.ask(f"/download/{blocks}")
    assert len(answer.body) == size and answer.body == bytes(range(256)) * (size >> 8)
    assert memory(server) - before < 32 << 20


def test_many_at_once(two):
    def one(n):
        box = two[n % 2]
        scene = Scene(box.instance, box.scenes["web"].url)
        for i in range(10):
            body = f"{n}-{i}-{'x' * (n * 997 % 40000)}".encode()
            answer = scene.ask("/upload", "POST", body, keep=True)
            assert answer.json() == {"sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body)}
            assert scene.ask(f"/head?{n}", keep=True).json()["name"] == f"web-{box.id}"
        scene.kept.close()
    gather([lambda n=n: one(n) for n in range(60)])


def test_events_in_their_order(web):
    connection = web.connect()
    connection.request("GET", "/events", headers={"Host": web.host, "Accept": "text/event-stream"})
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "text/event-stream"
    for i in range(10):  # the next word is said only when this one came: nothing holds it back
        web.ask(f"/tell/{i}")
        assert response.readline() == f"data: {i}\n".encode() and response.readline() == b"\n"
    web.ask("/tell/end")
    response.read()
    connection.close()


def test_websocket(server, web):
    ws = web.websocket()
    assert "X-Origin: http://localhost:8000" in ws.head
    for n in (0, 5, 200, 70000, 3 << 20):
        data = os.urandom(n)
        assert ws.echo(data) == data
    others = [web.websocket() for _ in range(50)]
    for i, other in enumerate(others):
        assert other.echo(b"%d" % i) == b"%d" % i
    assert server.get("/metrics")[0] != 200  # needs a key; asked with one below
    text = Scene(server, server.url).ask("/metrics", headers={"Authorization": f"Bearer {server.key()}"}).body.decode()
    assert re.search(r"^psbx_scene_tunnels 51$", text, re.M)
    assert int(re.search(r"^psbx_coroutines (\d+)$", text, re.M).group(1)) < 30  # none of them has a stack
    for one in [ws, *others]:
        one.close()
    until(lambda: web.ask("/told").json().count("ws gone") == 51)


def test_a_client_that_leaves(web):
    sock = web.raw()
    sock.sendall(f"GET /stuck HTTP/1.1\r\nHost: {web.host}\r\n\r\n".encode())
    assert sock.recv(100)
    sock.close()
    until(lambda: "gone" in web.ask("/told").json())


# ---------------------------------------------------------------- services that fail
@pytest.mark.parametrize("kind", ["cl-te", "two-lengths", "huge-header", "bare-lf", "no-http", "nothing", "switch"])
def test_hostile_answers(web, kind):
    answer = web.ask(f"/hostile/{kind}")
    assert answer.status == 502 and answer.json()["code"] == "service_failed"
    page = web.ask(f"/hostile/{kind}", headers={"Accept": "text/html"})
    assert page.status == 502 and "did not answer properly" in page.body.decode()


@pytest.mark.parametrize("kind", ["bad-chunk", "short"])
def test_answers_that_break_off(web, kind):
    sock = web.raw()
    sock.sendall(f"GET /hostile/{kind} HTTP/1.1\r\nHost: {web.host}\r\n\r\n".encode())
    got = b""
    try:
        while data := sock.recv(65536):
            got += data
    except ConnectionResetError:
        pass
    assert b" 200 " in got and not got.endswith(b"0\r\n\r\n")


def test_more_than_was_announced(web):
    scene = Scene(web.instance, web.url)
    assert scene.ask("/hostile/more", keep=True).body == b"ok"
    assert scene.ask("/head", keep=True).json()["name"].startswith("web-")


def test_down_killed_and_back(server):
    client = server.client()
    box = Box(server, client, SERVICES, run=False)
    web = box.scenes["web"]
    page = web.ask("/", headers={"Accept": "text/html", "Accept-Language": "de, ja;q=0.8"})
    assert page.status == 502 and page.headers["X-Psbx-Scene"] == "down" and page.headers["Content-Language"] == "ja"
    assert "8000" in page.body.decode() and box.id in page.body.decode()
    answer = web.ask("/")
    assert answer.status == 502 and answer.json() == {"error": f"nothing listens on port 8000 of the box {box.id}", "code": "nothing_listens"}
    box.serve("web")
    assert web.ask("/head").status == 200
    ws = web.websocket()
    sock = web.raw()
    sock.sendall(f"GET /die HTTP/1.1\r\nHost: {web.host}\r\n\r\n".encode())
    got = b""
    try:
        while data := sock.recv(1 << 20):
            got += data
    except ConnectionResetError:
        pass
    assert got.startswith(b"HTTP/1.1 200") and len(got) < 1000000  # cut, and seen to be cut
    with pytest.raises(OSError):
        ws.receive()
    assert web.ask("/").status == 502
    box.serve("web")
    assert web.ask("/head").status == 200
    client.stop(box.id)
    assert web.ask("/head", headers={"Sec-Fetch-Mode": "cors"}).status == 503
    client.stop(box.id)
    assert web.ask("/head").status == 404


def test_over_a_restart(new_server):
    server = new_server()
    client = server.client()
    box = Box(server, client, SERVICES)
    ws = box.scenes["web"].websocket()
    assert ws.echo(b"a") == b"a"
    assert server.stop() == 0  # an open tunnel holds nothing up
    assert ws.sock.recv(1) == b""
    server.start()
    assert box.scenes["web"].ask("/head").json()["name"] == f"web-{box.id}"  # the same address


def test_a_domain_of_ones_own(new_server):
    server = new_server(arguments=["--scene-domain", "https://boxes.example.com"])
    client = server.client()
    box = Box(server, client, SERVICES)
    scene = box.scenes["web"]
    assert re.fullmatch(rf"https://web--{box.id}--[a-z2-7]{{26}}\.boxes\.example\.com/", box.data["sceneUrl"])
    secure = {"X-Forwarded-Proto": "https"}  # as the proxy before this server says
    seen = scene.ask("/head", headers={**secure, "Origin": "https://" + scene.host})
    assert fields(seen, "origin") == ["http://localhost:8000"] and seen.headers["Access-Control-Allow-Origin"] == "https://" + scene.host
    assert scene.ask("/redirect", headers=secure).headers["Location"] == f"https://{scene.host}/after?x=1"
    assert scene.ask("/", host=scene.host.replace("boxes.example.com", "localhost")).status == 421
    assert scene.ask("/", host="boxes.example.com").status == 421


def test_bad_domains(new_server):
    import subprocess
    from instance import programs
    for wrong in ("", "https://", "a b", "ftp://x.example", "x.example:0", "x.example:", ".example", "x.example/path"):
        done = subprocess.run([str(programs() / "parallelsandbox"), "serve", "--state", "/nonexistent", "--scene-domain", wrong], capture_output=True, text=True)
        assert done.returncode == 2 and "--scene-domain" in done.stderr, wrong


def test_smuggling_requests(two):
    """Two readings of one request: refused before any service sees it, and nobody else's connection is touched."""
    web = two[0].scenes["web"]
    for head in ("Content-Length: 5\r\nTransfer-Encoding: chunked", "Content-Length: 5\r\nContent-Length: 6", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
                 "Transfer-Encoding : chunked", "X: a\r\n Content-Length: 5"):
        sock = web.raw()
        sock.sendall(f"POST /head HTTP/1.1\r\nHost: {web.host}\r\n{head}\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {web.host}\r\n\r\n".encode())
        got = b""
        while data := sock.recv(65536):
            got += data
        assert got.split(b" ")[1] in (b"400", b"501") and got.count(b"HTTP/1.1 ") == 1, got
    # Two hosts on one connection: each request goes where it says.
    scene = Scene(web.instance, web.url)
    for box in two * 3:
        assert scene.ask("/head", keep=True, host=box.scenes["web"].host).json()["name"] == f"web-{box.id}"


# ---------------------------------------------------------------- what the wiring says
class Outside(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path.endswith("/moved"):
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/base/api/there")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = json.dumps({"line": [self.command, self.path], "fields": [[k.lower(), v] for k, v in self.headers.items()], "name": "outside"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_paths_and_names_that_lead_elsewhere(new_server):
    outside = ThreadingHTTPServer(("127.0.0.1", 0), Outside)
    threading.Thread(target=outside.serve_forever, daemon=True).start()
    authority = f"127.0.0.1:{outside.server_address[1]}"
    server = new_server(arguments=["--allow-net", "127.0.0.0/8"])
    client = server.client()
    other = Box(server, client, [{"name": "db", "port": 8000}])
    box = Box(server, client, [{"name": "web", "port": 8000, "web": True}, {"name": "api", "port": 8080}, {"name": "db", "port": 8000, "targetPort": 8001}],
              externalBaseUrl=f"http://{authority}/base", run=["web"])
    web, api, db = (box.scenes[name] for name in ("web", "api", "db"))

    def wire(**arguments):
        answer = client.tool("sandbox_wire", {"id": box.id, **arguments})
        assert not answer.is_error, answer.text
        return answer.data

    def settled(ask, good):
        return until(lambda: (lambda a: a if good(a) else None)(ask()))
    assert settled(lambda: web.ask("/a"), lambda a: a.status == 200).json()["line"] == ["GET", "/base/a"]  # with externalBaseUrl all names begin there
    for name in ("web", "api", "db"):
        wire(service=name, mode="box")
    table = wire(scenePaths=["/api"])
    assert table["services"][0]["url"] == web.url + "/"  # one table, with the addresses
    seen = settled(lambda: web.ask("/api/x?y=1", headers={"Origin": web.origin, "Referer": web.origin + "/p", "Cookie": "psbx_1_session=s"}),
                   lambda a: a.json().get("name") == "outside")
    assert seen.json()["line"] == ["GET", "/base/api/x?y=1"] and fields(seen, "host") == [authority]
    assert fields(seen, "origin") == [f"http://{authority}"] and fields(seen, "referer") == [f"http://{authority}/p"]
    assert fields(seen, "cookie") == [] and fields(seen, "x-forwarded-host") == [] and web.host not in seen.body.decode()
    assert web.ask("/api/moved").headers["Location"] == web.origin + "/api/there"
    for path in ("/head", "/apix", "/api/../head"):
        assert web.ask(path).headers.get("Server") is None, path  # the box's
    wire(service="api", mode="external")
    assert settled(lambda: api.ask("/a"), lambda a: a.status == 200).json()["line"] == ["GET", "/base/a"]
    wire(service="api", mode="box")
    assert settled(lambda: api.ask("/a"), lambda a: a.status == 502).json()["code"] == "nothing_listens"
    assert db.ask("/head").status == 502
    wire(service="db", fromBox=other.id, port=8000)
    assert settled(lambda: db.ask("/head"), lambda a: a.status == 200).json()["name"] == f"db-{other.id}"
    outside.shutdown()


# ---------------------------------------------------------------- boxes that sleep
def state(client, box):
    return next(x["status"] for x in client.tool("sandbox_list", {"all": True})["boxes"] if x["id"] == box)


def test_a_request_wakes_a_frozen_box(new_server):
    server = new_server(arguments=("--freeze-after", "1s", "--archive-after", "never"))
    client = server.client()
    box = Box(server, client, SERVICES)
    until(lambda: state(client, box.id) == "frozen")
    # the page that waits for a service asks by itself: that is nobody's use
    answer = box.scenes["web"].ask("/head", headers={"X-Psbx-Scene": "retry"})
    assert answer.status == 503 and b"sleeps" in answer.body and state(client, box.id) == "frozen"
    assert box.scenes["web"].ask("/head", headers={"Sec-Fetch-Mode": "cors"}).status == 200
    assert state(client, box.id) == "running"
    until(lambda: state(client, box.id) == "frozen")
    assert [a.status for a in gather([lambda: box.scenes["api"].ask("/head")] * 8)] == [200] * 8
    for _ in range(2):
        client.stop(box.id)


def test_a_request_under_way_keeps_its_box_awake(new_server):
    server = new_server(arguments=("--freeze-after", "1s", "--archive-after", "never"))
    client = server.client()
    box = client.start(services=[{"name": "slow", "port": 8000}])
    client.exec(box, "python3 -c \"import http.server, time\nclass H(http.server.BaseHTTPRequestHandler):\n"
                     " def do_GET(self):\n  time.sleep(5); self.send_response(200); self.end_headers(); self.wfile.write(b'late')\n"
                     "http.server.HTTPServer(('127.0.0.1', 8000), H).serve_forever()\"", background=True)
    scene = Scene(server, client.tool("sandbox_status", {"id": box})["sceneUrl"])
    until(lambda: client.exec(box, "ss -ltn | grep -c :8000 || true")["stdout"].strip() == "1")
    assert scene.ask("/").body == b"late"
    for _ in range(2):
        client.stop(box)


def test_opening_a_page_brings_an_archived_box_back(new_server):
    server = new_server()
    client = server.client()
    box = Box(server, client, SERVICES)
    web = box.scenes["web"]
    client.exec(box.id, "echo kept > /work/kept")
    client.stop(box.id)
    assert state(client, box.id) == "archived"
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    for left_open in ({"Sec-Fetch-Mode": "cors"}, upgrade, {"User-Agent": "Mozilla/5.0", "Accept": "*/*"}, {"X-Psbx-Scene": "retry"}):
        answer = web.ask("/", headers=left_open)
        assert answer.status == 503 and b"load the page anew" in answer.body and state(client, box.id) == "archived"
    # its processes are gone, so the page says that nothing listens; but it is there again
    page = web.ask("/", headers={"Sec-Fetch-Mode": "navigate", "Accept": "text/html"})
    assert page.status == 502 and state(client, box.id) == "running", page.body
    assert client.exec(box.id, "cat /work/kept")["stdout"] == "kept\n"
    for _ in range(2):
        client.stop(box.id)
    assert web.ask("/", headers={"Sec-Fetch-Mode": "navigate"}).status == 404
