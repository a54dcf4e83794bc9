"""Scenes that have a port each instead of a name (serve --scene-ports): who gets in, and what stays apart although browsers do not separate ports."""

import re
import socket
import subprocess
import urllib.parse

import pytest
from instance import Instance, programs, until
from sceneclient import Box, PortScene, Scene, free_range

SERVICES = [{"name": "web", "port": 8000, "web": True}, {"name": "api", "port": 80, "targetPort": 9000}]


@pytest.fixture(scope="module")
def span():
    return free_range(40)


@pytest.fixture(scope="module")
def server(span):
    instance = Instance(arguments=["--scene-ports", f"{span[0]}-{span[1]}", "--host", "boxes.test"])
    try:
        instance.start()
        yield instance
        left = instance.finish()
    finally:
        instance.sweep()
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture(scope="module")
def two(server):
    client = server.client()
    boxes = [Box(server, client, SERVICES, scene=PortScene), Box(server, client, SERVICES, scene=PortScene)]
    yield boxes
    for box in boxes:
        client.stop(box.id)


@pytest.fixture
def web(two):
    return two[0].scenes["web"]


def fields(answer, name):
    return [value for key, value in answer.json()["fields"] if key == name]


def plain(answers):
    """All are the one answer that says nothing."""
    assert {a.status for a in answers} == {404}, [(a.status, a.body) for a in answers]
    assert len({a.body for a in answers}) == 1 and answers[0].json()["code"] == "no_scene"
    assert not any(a.headers.get("Set-Cookie") for a in answers)


# ---------------------------------------------------------------- addresses
def test_addresses(server, two, span):
    client = server.client()
    ports = set()
    for box in two:
        for data in (box.data, client.tool("sandbox_status", {"id": box.id}).data,
                     next(x for x in client.tool("sandbox_list", {}).data["boxes"] if x["id"] == box.id)):
            assert data["sceneUrl"] == data["webUrl"] == data["services"][0]["url"]
            keys = set()
            for service, known in zip(data["services"], box.data["services"]):
                assert service["url"] == known["url"]
                match = re.fullmatch(r"http://boxes\.test:(\d+)/\.psbx/([a-z2-7]{26})/", service["url"])  # by the name clients use
                assert span[0] <= int(match[1]) <= span[1]
                ports.add(int(match[1]))
                keys.add(match[2])
            assert len(keys) == 1
    assert len(ports) == 4
    # names lead nowhere now
    key = two[0].data["sceneUrl"].split("/")[4]
    assert Scene(server, server.url).ask("/head", host=f"web--{two[0].id}--{key}.localhost:{server.port}").status == 421


def test_wired_later(server):
    client = server.client()
    box = Box(server, client, [{"name": "web", "port": 8000}], scene=PortScene)
    table = client.tool("sandbox_wire", {"id": box.id, "service": "late", "mode": "box", "port": 8000}).data
    late = PortScene(server, table["services"][1]["url"])
    assert table["services"][0]["url"] == box.data["services"][0]["url"] and late.port != box.scenes["web"].port
    assert late.ask("/head").json()["name"] == f"web-{box.id}"
    client.stop(box.id)


# ---------------------------------------------------------------- who gets in
def test_the_key_is_needed(server, two, web):
    other = two[1].scenes["web"]
    other.enter()
    key = web.door.split("/")[2]
    name = f"psbx_{web.port}_scene"
    wrong = ["/", "/head", f"/.psbx/{'a' * 26}/", f"/.psbx/{key[:-1]}/", other.door, "/.psbx/", "/.psbx", f"/.psbx/{key}x/", f"/%2epsbx/{key}/", f"/?/.psbx/{key}/"]
    cookies = ["", f"{name}=", f"{name}={'a' * 26}", f"{name}={key}", other.cookie, other.cookie.replace(str(other.port), str(web.port))]
    plain([web.bare(path) for path in wrong] + [web.bare("/head", headers={"Cookie": cookie}) for cookie in cookies])
    page = web.bare("/", headers={"Accept": "text/html"})
    assert page.status == 404 and b"nothing to see" in page.body
    # and with it
    for path, to in (("", "/"), ("deep/link?x=1&y=%2F", "/deep/link?x=1&y=%2F"), ("/evil.example/", "/evil.example/"), ("//evil.example/b", "/evil.example/b")):
        answer = web.enter(path)
        assert answer.headers["Location"] == to and answer.headers["Referrer-Policy"] == "no-referrer" and answer.headers["Cache-Control"] == "no-store"
    given = answer.headers.get_all("Set-Cookie")
    assert [x.split("=")[0] for x in given] == [f"psbx_{s.port}_scene" for s in two[0].scenes.values()]  # one for each service of the box
    assert all("; HttpOnly" in x and "; SameSite=Lax" in x and "; Path=/" in x and "Domain" not in x and key not in x for x in given)
    assert web.ask("/head").json()["name"] == f"web-{two[0].id}"
    two[0].scenes["api"].cookie = web.cookie
    assert two[0].scenes["api"].ask("/head").json()["name"] == f"api-{two[0].id}"
    posted = web.bare(web.door + "upload", method="POST", body=b"abc")
    assert posted.status == 307 and web.ask(posted.headers["Location"], "POST", b"abc").json()["bytes"] == 3
    # a cookie that another page put before ours locks nobody out
    assert web.bare("/head", headers={"Cookie": f"{name}=tossed; {web.cookie}"}).status == 200


def test_the_service_sees_neither_key_nor_pass(two, web):
    web.enter()
    key = web.door.split("/")[2]
    seen = web.ask("/head?q=1", headers={"Origin": web.origin, "Referer": web.origin + "/page?x=1"})
    assert seen.json()["line"] == ["GET", "/head?q=1"] and fields(seen, "host") == ["localhost:8000"]
    assert fields(seen, "origin") == ["http://localhost:8000"] and fields(seen, "referer") == ["http://localhost:8000/page?x=1"]
    assert fields(seen, "cookie") == [] and fields(seen, "x-forwarded-host") == ["localhost:8000"]
    assert "Cookie" in seen.headers.get_all("Vary")  # a browser keeps no answer for the next box at this port
    assert key not in seen.body.decode() and "psbx" not in seen.body.decode() and seen.headers["Access-Control-Allow-Origin"] == web.origin


def test_redirects_come_back(two, web):
    assert web.ask("/redirect").headers["Location"] == web.origin + "/after?x=1"
    api = two[0].scenes["api"]
    for name, port in (("localhost", 9000), ("api", 80)):
        assert web.ask(f"/redirect-to/{name}/{port}").headers["Location"] == f"http://boxes.test:{api.port}/there"
        at = web.ask(f"/redirect-to/{name}/{port}", host=f"127.0.0.1:{web.port}")  # the host that the client uses
        assert at.headers["Location"] == f"http://127.0.0.1:{api.port}/there"


# ---------------------------------------------------------------- what ports do not separate
def test_cookies_stay_apart(two):
    """Browsers send every cookie of a host to all its ports: each service gets its own, under its own name."""
    jar = ["psbx_7420_session=secret", "__Host-psbx_session=secret", "who=nobody"]
    names = []
    for box in two:
        set_cookie = box.scenes["web"].ask(f"/cookie/{box.id}").headers.get_all("Set-Cookie")
        match = re.fullmatch(rf"(s{box.scenes['web'].port}-[a-z2-7]{{26}}-who)={box.id}; Path=/; HttpOnly", set_cookie[0])
        names.append(match[1])
        jar.append(f"{match[1]}={box.id}")
    for box in two:
        for name in ("web", "api"):
            jar += [box.scenes[name].enter() and box.scenes[name].cookie]
    assert names[0].split("-")[1] != names[1].split("-")[1]
    for box in two:
        seen = box.scenes["web"].bare("/head", headers={"Cookie": "; ".join(jar)})
        assert fields(seen, "cookie") == [f"who={box.id}"] and b"secret" not in seen.body
        seen = box.scenes["api"].bare("/head", headers={"Cookie": "; ".join(jar)})
        assert fields(seen, "cookie") == []


def test_the_app_is_out_of_reach(server, two, web):
    app = Scene(server, server.url)
    key = {"Authorization": f"Bearer {server.key()}"}
    for origin in (web.origin, f"http://127.0.0.1:{web.port}", f"http://localhost:{web.port}", "null"):
        for path in ("/v1/boxes", "/mcp", "/metrics"):
            answer = app.ask(path, headers={**key, "Origin": origin})
            assert answer.status == 403 and answer.json()["code"] == "wrong_origin", (origin, path)
        for path in ("/sign-in", "/sign-out"):
            answer = app.ask(path, "POST", "login=a&password=b", headers={"Origin": origin, "Content-Type": "application/x-www-form-urlencoded", "Host": f"boxes.test:{server.port}"})
            assert answer.status == 403, (origin, path)
    for ours in (f"http://boxes.test:{server.port}", f"http://127.0.0.1:{server.port}", "https://boxes.test"):
        assert app.ask("/v1/boxes", headers={**key, "Origin": ours}).status == 200
    assert app.ask("/v1/boxes", headers=key, host=web.host).status == 421  # a scene's port is not the app's, whatever its name
    for path in ("/healthz", "/readyz", "/mcp", "/v1/boxes", "/v1/openapi.json", "/sign-in", "/.well-known/oauth-authorization-server", "/metrics"):
        for host in (web.host, f"127.0.0.1:{server.port}", f"boxes.test:{server.port}"):  # nor does a Host lead from a scene's port to the app
            assert b"<h1>web-" in web.ask(path, headers=key, host=host).body, (path, host)
            plain([web.bare(path, headers=key, host=host)])


def test_pages_of_others_cannot_use_the_cookie(two, web):
    """One host is one site: the browser sends the cookie along with whatever a page of another port asks for."""
    a, b = two
    web.enter()
    foreign = b.scenes["web"].origin
    mozilla = {"User-Agent": "Mozilla/5.0"}
    refused = [{"Origin": foreign}, {"Origin": "null"}, {"Origin": "https://example.com"}, {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
               {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, {**mozilla, "Accept": "*/*"}, {**mozilla, "Referer": foreign + "/"}, {**mozilla, "Referer": "http://x/"}]
    plain([web.ask("/head", headers=h) for h in refused])
    plain([web.ask("/upload", "POST", b"x", headers={"Origin": foreign}), web.ask("/sw.js", headers={"Service-Worker": "script", "Sec-Fetch-Site": "same-origin"})])
    sibling = a.scenes["api"].origin
    taken = [{}, {"Origin": web.origin}, {"Origin": sibling}, {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
             {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}, {**mozilla, "Accept": "text/html,*/*"}, {**mozilla, "Referer": web.origin + "/p"}, {**mozilla, "X-Psbx-Scene": "retry"}]
    assert {web.ask("/head", headers=h).status for h in taken} == {200}
    seen = web.ask("/head", headers={"Origin": sibling})
    assert fields(seen, "origin") == ["http://localhost:9000"] and seen.headers["Access-Control-Allow-Origin"] == sibling
    seen = web.ask("/head", headers={"Referer": foreign + "/secret"})  # another box is nobody's business
    assert fields(seen, "referer") == []


def test_websocket(two, web):
    ws = web.websocket()
    assert "X-Origin: http://localhost:8000" in ws.head
    for n in (0, 5, 70000):
        assert ws.echo(b"x" * n) == b"x" * n
    ws.close()
    for wrong in ({"cookie": ""}, {"origin": two[1].scenes["web"].origin}, {"origin": "null"}, {"cookie": two[1].scenes["web"].enter() and two[1].scenes["web"].cookie}):
        with pytest.raises(AssertionError, match="404"):
            web.websocket(**wrong)


# ---------------------------------------------------------------- what is down, what sleeps
def state(client, box):
    return next(x["status"] for x in client.tool("sandbox_list", {"all": True})["boxes"] if x["id"] == box)


def test_frozen_and_archived_boxes_keep_theirs(new_server):
    first, last = free_range(4)
    server = new_server(arguments=["--scene-ports", f"{first}-{last}", "--freeze-after", "1s", "--archive-after", "never"])
    client = server.client()
    box = Box(server, client, SERVICES, scene=PortScene)
    web = box.scenes["web"]
    web.enter()
    until(lambda: state(client, box.id) == "frozen")
    plain([web.bare("/head")])
    assert web.bare(web.door).status == 307 and state(client, box.id) == "frozen"  # the page behind it wakes the box
    assert web.ask("/head").status == 200 and state(client, box.id) == "running"
    client.stop(box.id)
    assert state(client, box.id) == "archived"
    row = next(x for x in client.tool("sandbox_list", {"all": True})["boxes"] if x["id"] == box.id)
    assert row["sceneUrl"] == box.data["sceneUrl"]
    for left_open in ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, {"User-Agent": "Mozilla/5.0", "Referer": web.origin + "/"}):
        assert web.ask("/", headers=left_open).status == 503 and state(client, box.id) == "archived"
    page = web.ask("/", headers={"Sec-Fetch-Mode": "navigate", "Accept": "text/html"})
    assert page.status == 502 and page.headers["X-Psbx-Scene"] == "down" and state(client, box.id) == "running"
    for _ in range(2):
        client.stop(box.id)
    with pytest.raises(OSError):  # with its box it is gone
        web.bare("/")


# ---------------------------------------------------------------- which port
def listening(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def test_over_a_restart(new_server):
    first, last = free_range(6)
    server = new_server(arguments=["--scene-ports", f"{first}-{last}"])
    client = server.client()
    gone = Box(server, client, SERVICES[:1], scene=PortScene)
    box = Box(server, client, SERVICES, scene=PortScene)
    web, api = box.scenes["web"], box.scenes["api"]
    ws = web.websocket()
    assert ws.echo(b"a") == b"a"
    for _ in range(2):
        client.stop(gone.id)
    assert not listening(gone.scenes["web"].port)
    assert server.stop() == 0 and not listening(web.port)
    server.start()
    assert web.ask("/head").json()["name"] == f"web-{box.id}"  # the address, and the cookie
    assert web.bare(web.door).status == 307
    server.kill()
    server.start()
    assert web.ask("/head").status == 200 and listening(api.port)
    # One that somebody else took meanwhile: another for the service, and what was told leads to nothing of ours.
    server.stop()
    with socket.create_server(("127.0.0.1", api.port)):
        server.start()
        data = server.client().tool("sandbox_status", {"id": box.id}).data
        moved = PortScene(server, data["services"][1]["url"])
        assert data["services"][0]["url"] == box.data["services"][0]["url"] and moved.port not in (api.port, web.port)
        assert moved.ask("/head").json()["name"] == f"api-{box.id}"
        assert f"port {api.port} of the service" in server.log_tail()
    # Another range: new ports for all.
    server.stop()
    other = free_range(6)
    server.arguments[1] = f"{other[0]}-{other[1]}"
    server.start()
    data = server.client().tool("sandbox_status", {"id": box.id}).data
    assert all(other[0] <= urllib.parse.urlsplit(s["url"]).port <= other[1] for s in data["services"])
    # Without the option they have names.
    server.stop()
    del server.arguments[:2]
    server.start()
    data = server.client().tool("sandbox_status", {"id": box.id}).data
    assert re.fullmatch(rf"http://web--{box.id}--[a-z2-7]{{26}}\.localhost:{server.port}/", data["sceneUrl"])


def test_a_full_range(new_server):
    first, last = free_range(2)
    server = new_server(arguments=["--scene-ports", f"{first}-{last}"])
    client = server.client()
    one = Box(server, client, SERVICES, scene=PortScene)
    web = one.scenes["web"]
    web.enter()
    assert set(one.scenes) == {"web", "api"}
    two = Box(server, client, SERVICES[:1], scene=PortScene, run=False)
    assert two.scenes == {} and "sceneUrl" not in two.data and "webUrl" not in two.data
    assert f"{first} to {last}" in two.data["services"][0]["urlMissing"] and "--scene-ports" in two.data["services"][0]["urlMissing"]
    assert "services are told without an address" in server.log_tail()
    for _ in range(2):
        client.stop(one.id)
    data = client.tool("sandbox_status", {"id": two.id}).data
    now = PortScene(server, data["sceneUrl"])
    assert "urlMissing" not in data["services"][0] and now.port in (first, last)
    two.serve("web")
    assert now.ask("/head").json()["name"] == f"web-{two.id}"
    # What opened the other box there opens nothing here.
    for port in (first, last):
        if port == now.port:
            plain([now.bare("/head", headers={"Cookie": web.cookie}), now.bare(web.door)])


def test_two_servers_with_one_range(new_server):
    first, last = free_range(3)
    servers = [new_server(arguments=["--scene-ports", f"{first}-{last}"]) for _ in range(2)]
    boxes = [Box(server, server.client(), SERVICES[:1], scene=PortScene) for server in servers]
    webs = [box.scenes["web"] for box in boxes]
    assert webs[0].port != webs[1].port
    for web, box in zip(webs, boxes):
        assert web.ask("/head").json()["name"] == f"web-{box.id}"
    plain([webs[0].bare(webs[1].door), webs[0].bare("/", headers={"Cookie": webs[1].enter() and webs[1].cookie})])


def test_bad_ranges():
    def refused(*arguments):
        done = subprocess.run([str(programs() / "parallelsandbox"), "serve", "--state", "/nonexistent", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2, (arguments, done.stderr)
        return done.stderr
    for wrong in ("", "-", "80-90", "7500-", "-7500", "7600-7500", "7500-99999", "a-b", "7500-7600-7700", "1024-65535", "7500 - 7600"):
        assert "--scene-ports is a range" in refused("--scene-ports", wrong), wrong
    assert "exclude" in refused("--scene-ports", "7500-7599", "--scene-domain", "a.example")
    assert "7420" in refused("--scene-ports", "7400-7500")
