"""sandbox_list, sandbox_status, sandbox_stop, and who may see what."""

import hashlib
import io
import json
import re
import secrets
import sqlite3
import tarfile
import threading

import pytest
from instance import until
from mcpclient import gather


def listed(client, **arguments):
    return client.tool("sandbox_list", arguments)["boxes"]


def status(client, box):
    return client.tool("sandbox_status", {"id": box})


@pytest.fixture
def boxes(client):
    made = []

    def start(by=client, **arguments):
        made.append((by, by.start(size="small", **arguments)))
        return made[-1][1]

    yield start
    for by, box in made:
        by.stop(box)


def test_most_recently_used_first(client, boxes):
    one, two, three = boxes(name="one"), boxes(name="two"), boxes(name="three")
    assert [box["id"] for box in listed(client)][:3] == [three, two, one]
    client.exec(one, "true", note="look around")
    assert [box["id"] for box in listed(client)][:3] == [one, three, two]
    client.tool("sandbox_status", {"id": two})
    client.tool("sandbox_list", {})
    assert [box["id"] for box in listed(client)][:3] == [one, three, two], "looking is no use"
    row = listed(client)[0]
    assert row["recentNotes"][-1]["note"] == "look around"
    assert (row["name"], row["status"], row["size"], row["services"], row["repos"]) == ("one", "running", "small", [], [])
    assert row["lastUsedAt"] > row["createdAt"]


def test_a_list_stays_small(client, boxes):
    ugly = "\x01" * 200
    made = [boxes(goal="\x02" * 500, name="n" * 60, services=[{"name": f"service-{n:02}-{'x' * 40}", "port": n + 1} for n in range(32)])
            for _ in range(4)]
    for box in made:
        for _ in range(3):
            client.exec(box, "true", note=ugly)
    result = client.tool("sandbox_list", {})
    assert len(result.content[0]["text"]) <= 32 << 10
    assert len(result["boxes"]) + result.data.get("leftOut", 0) == 4
    assert result["boxes"], "one fits at least"


def test_status_of_a_box(client, boxes):
    box = boxes(goal="be looked at", name="looked at", services=[{"name": "web", "port": 80, "targetPort": 8080, "web": True}])
    client.exec(box, "exit 3", note="fail", cwd="/work")
    client.exec(box, "kill -9 $$", note="die")
    client.exec(box, "sleep 20", note="too long", timeoutSec=1)
    client.exec(box, "sleep 700", note="go on", background=True)
    data = status(client, box)
    assert (data["id"], data["goal"], data["name"], data["status"]) == (box, "be looked at", "looked at", "running")
    assert data["health"]["healthy"] is True
    assert data["sceneUrl"] == data["webUrl"] == data["services"][0].pop("url")
    assert data["services"] == [{"name": "web", "port": 80, "targetPort": 8080, "mode": "box", "web": True}]
    steps = data["steps"][-4:]
    assert [step["note"] for step in steps] == ["fail", "die", "too long", "go on"]
    assert all(step["tool"] == "sandbox_exec" and step["startedAt"] and step["directory"] == "/work" for step in steps)
    assert (steps[0]["command"], steps[0]["exitCode"]) == ("exit 3", 3)
    assert (steps[1]["exitCode"], steps[1]["signal"]) == (137, "SIGKILL")
    assert steps[2]["timedOut"] is True
    resources = data["resources"]
    assert 0 < resources["memory"]["used"] < resources["memory"]["limit"]
    assert 1 < resources["pids"]["used"] < resources["pids"]["limit"]
    assert 0 <= resources["disk"]["used"] < resources["disk"]["limit"]
    assert resources["cpu"]["usedMs"] >= 0


def test_a_running_step_says_so(client, boxes):
    box = boxes()
    thread = threading.Thread(target=lambda: client.exec(box, "touch began; sleep 701", note="long", execId="long"), daemon=True)
    thread.start()
    until(lambda: client.exec(box, "ls began")["exitCode"] == 0)
    step = next(step for step in status(client, box)["steps"] if step["note"] == "long")
    assert step["running"] is True and "exitCode" not in step
    client.tool("sandbox_procs", {"id": box, "action": "stop", "bgId": "long"})
    thread.join(30)
    step = next(step for step in status(client, box)["steps"] if step["note"] == "long")
    assert "running" not in step and step["exitCode"] > 128


def test_thirty_worst_steps_stay_small(client, boxes):
    box = boxes()
    deep = "/".join(["d" * 200] * 18)
    client.exec(box, f"mkdir -p {deep}")
    for n in range(31):
        client.exec(box, f"true {n} # " + "\x01\x02é" * 3000, note="\x01" * 200, cwd=deep)
    result = status(client, box)
    assert not result.is_error, result.text
    assert len(result.content[0]["text"]) <= 32 << 10
    assert 3 <= len(result["steps"]) <= 30
    assert len(result["steps"]) + result["stepsLeftOut"] == 30
    assert result["steps"][-1]["command"].startswith("true 30 #")


def test_agent_states(server, boxes, client):
    one, two = server.client(agent="agent-1", client="one/1"), server.client(agent="agent-2", client="two/2")
    box = boxes(by=one)
    plain = boxes()
    agent = status(one, box)["agent"]
    assert (agent["state"], agent["client"], agent["thisConversation"]) == ("working", "one/1", True)
    agent = status(two, box)["agent"]
    assert (agent["state"], agent["thisConversation"]) == ("working", False)
    assert status(client, plain)["agent"]["state"] == "untracked"
    assert status(client, box)["agent"]["thisConversation"] is False
    # the conversation says goodbye, and comes back
    assert one.rest("POST", "/v1/agents/agent-1/leave", {"client": "one/1"})[0] == 200
    assert status(two, box)["agent"]["state"] == "left"
    assert one.rest("POST", "/v1/agents/agent-1/heartbeat", {"client": "one/1.1"})[0] == 200
    agent = status(two, box)["agent"]
    assert (agent["state"], agent["client"]) == ("working", "one/1.1")
    one.rest("POST", "/v1/agents/agent-1/leave")
    one.exec(box, "true")
    assert status(two, box)["agent"]["state"] == "working", "a call is a sign of life"
    # who uses a box last holds it
    two.exec(box, "true")
    assert status(two, box)["agent"]["thisConversation"] is True
    assert status(one, box)["agent"]["thisConversation"] is False
    assert status(one, box)["agent"]["client"] == "two/2"
    row = next(row for row in listed(one) if row["id"] == box)
    assert row["agent"]["client"] == "two/2"


def test_unsaved_work(client, boxes):
    box = boxes()
    git = "git -c user.name=t -c user.email=t@localhost"
    result = client.exec(box, "mkdir origin.tmp && git init -q --bare /tmp/origin && rmdir origin.tmp && git init -q clean && cd clean && "
                              f"echo 1 > f && git add f && {git} commit -qm 1 && git remote add origin /tmp/origin && git push -q origin HEAD && "
                              f"cd .. && cp -r clean dirty && echo 2 > dirty/f && echo 3 > dirty/new && cp -r clean ahead && cd ahead && "
                              f"echo 4 > g && git add g && {git} commit -qm 2 && cd .. && mkdir 'plain files é' && echo x > 'plain files é/x' && "
                              "echo y > loose && mkdir -p only/node_modules/m && echo z > only/node_modules/m/z && mkdir nothing")
    assert result["exitCode"] == 0, result
    data = client.stop(box)
    unsaved = {entry["path"].removeprefix("/work/"): entry for entry in data["unsavedWork"]}
    assert set(unsaved) == {"dirty", "ahead", "plain files é", "loose"}, unsaved
    assert (unsaved["dirty"]["kind"], unsaved["dirty"]["uncommitted"], unsaved["dirty"]["unpushedCommits"]) == ("git", 2, 0)
    assert (unsaved["ahead"]["uncommitted"], unsaved["ahead"]["unpushedCommits"]) == (0, 1)
    assert (unsaved["plain files é"]["kind"], unsaved["plain files é"]["changedFiles"]) == ("files", 1)


def test_what_was_synced_in_is_saved_until_it_changes(client, boxes):
    def upload(box):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for name in ("a", "b"):
                info = tarfile.TarInfo(name)
                info.size = 1
                tar.addfile(info, io.BytesIO(b"x"))
        assert client.rest("POST", f"/v1/boxes/{box}/sync?dest=in", data.getvalue())[0] == 200

    one, two = boxes(), boxes()
    upload(one)
    assert client.stop(one)["unsavedWork"] == []
    upload(two)
    client.exec(two, "sleep 0.1; echo changed > in/a")
    assert [entry["changedFiles"] for entry in client.stop(two)["unsavedWork"]] == [1]


def test_stop_ends_everything(server, client, boxes):
    box = boxes()
    client.exec(box, "sleep 702", background=True)
    data = client.stop(box)
    assert (data["ok"], data["id"]) == (True, box)
    assert box not in [row["id"] for row in listed(client)]
    assert not [path for path in server.state.glob("boxhost/boxes/*") if path.name == box]
    assert not (server.state / "run" / f"{box}.sock").exists()
    for tool, arguments in (("sandbox_exec", {"cmd": "true", "note": "x"}), ("sandbox_get", {"path": "x"}), ("sandbox_procs", {"action": "list"})):
        result = client.tool(tool, {"id": box, **arguments})
        assert result.is_error and box in result.text
    for status_then in ("deleted", None):
        again = client.stop(box)
        assert again.is_error == (status_then is None) and (again.is_error or again["status"] == status_then)
    assert box in again.text


def test_stop_from_many_at_once(client, boxes):
    box = boxes()
    results = gather([lambda: client.stop(box)] * 6)
    # one archives; one that comes late enough finds an archived box, and deletes it
    assert sorted(result["status"] for result in results if not result.is_error) in (["archived"], ["archived", "deleted"])
    for result in results:
        assert not result.is_error or re.search("being (stopped|archived|deleted)|no box", result.text), result.text
    boxes()  # the server is well


def test_stop_while_commands_run(client, boxes):
    box = boxes()
    said = []
    threads = [threading.Thread(target=lambda: said.append(client.exec(box, "sleep 703")), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: client.exec(box, "pgrep -fxc 'sleep 703'")["stdout"] == "4\n")
    assert not client.stop(box).is_error
    for thread in threads:
        thread.join(30)
    assert len(said) == 4
    for result in said:
        assert result.is_error or result["exitCode"] > 128


@pytest.fixture(scope="module")
def stranger(server):
    """A client of another account. Accounts are made over the app only, so this one is written into the database."""
    key = "psbx_" + secrets.token_urlsafe(32)
    database = sqlite3.connect(server.state / "state.db", timeout=30)
    with database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(accounts)")]
        assert {"id", "name", "created_at"} <= set(columns)
        database.execute("INSERT INTO accounts (id, name, created_at) VALUES ('strangers', 'strangers', 1)")
        database.execute("INSERT INTO keys (id, account_id, name, hash, hint, created_at) VALUES ('strangerskey', 'strangers', 'k', ?, 'psbx_…', 1)",
                         (hashlib.sha256(key.encode()).digest(),))
    database.close()
    return server.client(key=key)


def test_a_foreign_box_is_an_unknown_box(client, stranger, boxes):
    box = boxes(goal="a secret goal", name="a secret name")
    client.exec(box, "echo secret > file; sleep 704", background=True, execId="theirs")
    unknown = "u" * len(box)
    assert listed(stranger) == [] and listed(stranger, all=True) == []
    for tool, arguments in (
            ("sandbox_status", {}), ("sandbox_exec", {"cmd": "true", "note": "x"}), ("sandbox_exec", {"cmd": "true", "note": "x", "background": True}),
            ("sandbox_procs", {"action": "list"}), ("sandbox_procs", {"action": "wait", "bgId": "theirs"}),
            ("sandbox_procs", {"action": "stop", "bgId": "theirs"}), ("sandbox_procs", {"action": "input", "bgId": "theirs", "stdin": "x"}),
            ("sandbox_get", {"path": "file"}), ("sandbox_get", {"paths": ["file"]}), ("sandbox_stop", {})):
        foreign, nobody = (stranger.tool(tool, {"id": name, **arguments}) for name in (box, unknown))
        assert foreign.is_error and nobody.is_error
        assert foreign.text.replace(box, unknown) == nobody.text, tool
        assert "secret" not in foreign.text
    for method, path, body in (
            ("GET", "", None), ("POST", "/sync?dest=d", b"x"), ("POST", "/plan?dest=d", b""), ("POST", "/prune?dest=d", b"file\0"), ("DELETE", "", None)):
        answers = [stranger.rest(method, f"/v1/boxes/{name}{path}", body) for name in (box, unknown)]
        assert answers[0][0] == answers[1][0] >= 400, path
        assert answers[0][2].replace(box.encode(), unknown.encode()) == answers[1][2], path
    assert json.loads(stranger.rest("GET", "/v1/boxes?all=true")[2])["boxes"] == []
    assert client.exec(box, "cat file; pgrep -fxc 'sleep 704'")["stdout"] == "secret\n1\n", "nothing was touched"
    assert status(client, box)["agent"]["state"] == "untracked"


def test_each_account_has_its_own_conversations(client, stranger, server, boxes):
    key = stranger.key
    mine, theirs = server.client(agent="same-name"), server.client(agent="same-name", key=key)
    box = boxes(by=mine)
    theirs.rest("POST", "/v1/agents/same-name/leave")
    assert status(mine, box)["agent"]["state"] == "working"
    assert listed(theirs) == []


def test_a_foreign_session_is_unknown(client, stranger):
    status_code, _, _ = stranger.rest("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"},
                                      headers={"Accept": "application/json, text/event-stream", "Mcp-Session-Id": client.session})
    assert status_code == 404
    mine, _, _ = client.rest("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"},
                             headers={"Accept": "application/json, text/event-stream"})
    assert mine == 200
