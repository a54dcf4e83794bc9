"""GET /v1/events and what else the app asks for: live facts, resuming over a restart, other accounts, steps, a stop."""

import http.client
import json
import threading

import pytest
from browser import Browser
from instance import until
from oauthclient import PASSWORD, people


class Events:
    """One stream, read in the background; `seen` has (id, name, data) in order."""

    def __init__(self, instance, key=None, since=None, headers=None):
        self.seen, self.ended = [], threading.Event()
        self._link = http.client.HTTPConnection("127.0.0.1", instance.port, timeout=120)
        sent = {**({"Authorization": f"Bearer {key}"} if key else {}), **({"Last-Event-ID": since} if since else {}), **(headers or {})}
        self._link.request("GET", "/v1/events", headers=sent)
        self.answer = self._link.getresponse()
        self.status = self.answer.status
        if self.status == 200:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        fields = {}
        try:
            for line in self.answer:
                line = line.decode().rstrip("\n")
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value.strip()
                elif "event" in fields:
                    self.seen.append((fields["id"], fields["event"], json.loads(fields["data"])))
                    fields = {}
        except (OSError, ValueError, AttributeError, http.client.HTTPException):  # closed under its hands
            pass
        self.ended.set()

    def names(self):
        return [name for _, name, _ in list(self.seen)]

    def wait(self, name, **data):
        def found():
            return next((event for event in list(self.seen) if event[1] == name and data.items() <= event[2].items()), None)
        return until(found)

    def close(self):
        try:
            self.answer.fp.raw._sock.shutdown(2)
        except (OSError, AttributeError):
            pass
        self._link.close()


@pytest.fixture
def watch(server):
    made = []

    def start(*arguments, **more):
        made.append(Events(server, *arguments, **more))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_a_box_as_it_happens(server, client, watch):
    events = watch(client.key)
    events.wait("ready")
    agent = server.client(agent="conversation-7")
    box = agent.start(goal="to be watched")
    assert events.wait("box.state", box=box, status="running")
    agent.tool("sandbox_exec", {"id": box, "cmd": "exit 3", "note": "tries something"})
    begun = events.wait("step.begin", box=box)[2]["step"]
    ended = events.wait("step.end", box=box)[2]["step"]
    assert begun["note"] == "tries something" and "endedAt" not in begun and begun["id"] == ended["id"]
    assert ended["exitCode"] == 3 and ended["durationMs"] >= 0 and ended["conversation"] and "conversation-7" not in json.dumps(ended)
    assert events.wait("agent.state", box=box, state="working")
    agent.rest("POST", "/v1/agents/conversation-7/leave", {})
    assert events.wait("agent.state", box=box, state="left")
    shown = json.loads(client.rest("GET", f"/v1/boxes/{box}")[2])
    assert shown["last"]["note"] == "tries something" and shown["now"] is None and shown["conversation"] == ended["conversation"]
    status, _, body = client.rest("POST", f"/v1/boxes/{box}/stop")
    assert status == 200 and json.loads(body)["ok"] is True
    assert events.wait("box.state", box=box)[2]
    until(lambda: [e for e in events.seen if e[1] == "box.state"][-1][2]["status"] in ("deleted", "archived"))
    ids = [int(event[0]) for event in events.seen]
    assert ids == sorted(set(ids))
    client.tool("sandbox_stop", {"id": box})


def test_nothing_is_lost_or_doubled(client, watch, box):
    """Streams that break off again and again see what a stream that never did sees."""
    whole = watch(client.key)
    whole.wait("ready")
    pieces, since = [], whole.seen[0][0]
    for i in range(12):
        client.tool("sandbox_exec", {"id": box, "cmd": "true", "note": f"number {i}"})
        part = watch(client.key, since=since)
        whole.wait("step.end", box=box)
        until(lambda: len([n for n in whole.names() if n == "step.end"]) == i + 1)
        last = whole.seen[-1][0]
        until(lambda: part.seen and int(part.seen[-1][0]) >= int(last))
        pieces += part.seen
        since = part.seen[-1][0]
        part.close()
    assert pieces == whole.seen[1:len(pieces) + 1]
    assert [e[2]["step"]["note"] for e in pieces if e[1] == "step.end"] == [f"number {i}" for i in range(12)]


def test_a_restart_means_reset(new_server):
    server = new_server()
    key = server.client().key
    first = Events(server, key)
    last = first.wait("ready")[0]
    server.stop()
    assert first.ended.wait(30), "a server that stops ends its streams"
    server.start()
    again = Events(server, key, since=last)
    now = again.wait("reset")[0]
    assert int(now) > int(last)
    again.close()


def test_another_account_sees_nothing(new_server):
    server = new_server()
    one, mine = people(server), server.client()
    link = server.command("users", "invite", "--new-account", "others").strip().splitlines()[-1]
    other = Browser(server.url)
    other.join(link, "eve", PASSWORD)
    cookies = {"Cookie": "; ".join(f"{k}={v}" for k, v in other.cookies.items())}
    theirs, ours = Events(server, headers=cookies), Events(server, mine.key)
    theirs.wait("ready")
    ours.wait("ready")
    box = mine.start(goal="secret plans")
    mine.tool("sandbox_exec", {"id": box, "cmd": "true", "note": "secret note"})
    ours.wait("step.end", box=box)
    for path in (f"/v1/boxes/{box}", f"/v1/boxes/{box}/steps", f"/v1/boxes/{box}/unsaved"):
        assert other.get(path).status == 404, path
    csrf = json.loads(other.get("/v1/session").body)["csrf"]
    assert other.request("POST", f"/v1/boxes/{box}/stop", headers={"X-Psbx-Csrf": csrf}).status == 404
    assert theirs.names() == ["ready"]
    mine.tool("sandbox_stop", {"id": box})
    mine.tool("sandbox_stop", {"id": box})
    assert theirs.names() == ["ready"] and one
    theirs.close()
    ours.close()


def test_who_may(server, client, watch):
    for headers in ({}, {"Authorization": "Bearer psbx_wrong"}, {"Cookie": "psbx_1_session=x"}):
        assert watch(headers=headers).status == 401, headers
    assert watch(client.key, headers={"Origin": "http://evil.example"}).status == 403


def test_steps_in_pages(client, box):
    for i in range(7):
        client.tool("sandbox_exec", {"id": box, "cmd": f"echo {i}", "note": f"step {i}"})
    page = json.loads(client.rest("GET", f"/v1/boxes/{box}/steps?limit=3")[2])
    assert [s["note"] for s in page["steps"]] == ["step 6", "step 5", "step 4"] and page["more"] is True
    page = json.loads(client.rest("GET", f"/v1/boxes/{box}/steps?limit=4&before={page['steps'][-1]['id']}")[2])
    assert [s["note"] for s in page["steps"]] == ["step 3", "step 2", "step 1", "step 0"] and page["more"] is False
    long = "echo " + "x" * 9000
    client.tool("sandbox_exec", {"id": box, "cmd": long, "note": "long"})
    step = json.loads(client.rest("GET", f"/v1/boxes/{box}/steps?limit=1")[2])["steps"][0]
    assert long.startswith(step["command"]) and len(step["command"]) == 8192
    for query in ("limit=0", "limit=201", "limit=x", "before=-1", "before=99999999999999999999"):
        status, _, body = client.rest("GET", f"/v1/boxes/{box}/steps?{query}")
        assert status == 400 and query.split("=")[0] in json.loads(body)["error"], query
    assert client.rest("GET", "/v1/boxes/nosuchbox1/steps")[0] == 404


def test_unsaved_work_before_a_stop(client, box):
    assert json.loads(client.rest("GET", f"/v1/boxes/{box}/unsaved")[2]) == {"unsavedWork": []}
    client.tool("sandbox_exec", {"id": box, "cmd": "echo new > made-here.txt", "note": "makes a file"})
    found = json.loads(client.rest("GET", f"/v1/boxes/{box}/unsaved")[2])["unsavedWork"]
    assert found == [{"path": "made-here.txt", "kind": "files", "changedFiles": 1}]
    assert json.loads(client.rest("POST", f"/v1/boxes/{box}/stop")[2])["unsavedWork"] == found


def test_a_secret_in_a_file_name_is_masked(client):
    value = "hunter2-hunter2-hunter2"
    assert client.rest("PUT", "/v1/secrets/MASKED_HERE", {"value": value})[0] in (200, 201, 204)
    box = client.start(secrets=["MASKED_HERE"])
    client.tool("sandbox_exec", {"id": box, "cmd": "echo x > /work/$MASKED_HERE.txt", "note": "names a file after a secret"})
    for method, path in (("GET", "unsaved"), ("POST", "stop")):
        status, _, body = client.rest(method, f"/v1/boxes/{box}/{path}")
        assert status == 200 and value not in body.decode() and "MASKED_HERE" in body.decode(), body
    client.tool("sandbox_stop", {"id": box})


def test_a_browser_needs_its_token_to_stop(new_server):
    server = new_server()
    people(server)
    person, client = Browser(server.url), server.client()
    person.sign_in("ada", PASSWORD)
    box = client.start()
    assert person.get(f"/v1/boxes/{box}/steps").status == 200
    assert person.request("POST", f"/v1/boxes/{box}/stop").status == 401
    assert person.request("POST", f"/v1/boxes/{box}/stop", headers={"X-Psbx-Csrf": "wrong"}).status == 401
    csrf = json.loads(person.get("/v1/session").body)["csrf"]
    assert person.request("POST", f"/v1/boxes/{box}/stop", headers={"X-Psbx-Csrf": csrf, "Origin": "http://evil.example"}).status == 403
    assert json.loads(person.get(f"/v1/boxes/{box}").body)["status"] == "running"
    assert person.request("POST", f"/v1/boxes/{box}/stop", headers={"X-Psbx-Csrf": csrf, "Origin": server.url}).status == 200
    client.tool("sandbox_stop", {"id": box})
