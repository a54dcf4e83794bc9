"""The commands of parallelsandbox: help, usage, keys, doctor, status, and `up` and `down` that leave nothing behind."""

import json
import os
import re
import subprocess
import tempfile
import urllib.parse
from pathlib import Path

import pytest
from instance import Instance, programs, until
from mcpclient import McpClient, McpError

COMMANDS = ("serve", "up", "down", "status", "doctor", "keys", "image")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="boxes are made by root, and this run is not root")


def run(*arguments, env=None, timeout=120):
    return subprocess.run([str(programs() / "parallelsandbox"), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout, check=False, env=env)


def test_help():
    overview = run("--help")
    assert overview.returncode == 0 and overview.stderr == ""
    for command in COMMANDS:
        assert f"parallelsandbox {command}" in overview.stdout
        for arguments in ((command, "--help"), (command, "--state", "/nowhere", "--help")):
            done = run(*arguments)
            assert done.returncode == 0, arguments
            assert done.stdout.startswith(f"parallelsandbox {command}") and done.stderr == ""
    done = subprocess.run([str(programs() / "boxhost"), "--help"], capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and "--state" in done.stdout
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", run("--version").stdout)


@pytest.mark.parametrize("arguments", [
    "", "nonsense", "serve", "serve --nope", "serve --state", "serve --state STATE extra", "serve --state STATE --log-level loud",
    "serve --state STATE --listen nowhere", "serve --state STATE --listen 127.0.0.1:99999", "serve --state STATE --max-boxes 0",
    "serve --state STATE --max-boxes many", "serve --state STATE --warm 65", "serve --state STATE --warm some",
    "up --state STATE --nope", "down --state STATE --nope", "status --state STATE --nope", "doctor --nope",
    "keys --state STATE --nope", "keys --state STATE", "keys --state STATE explode", "keys --state STATE add", "keys --state STATE list extra",
    "status --state STATE extra", "down --state STATE extra", "up --state STATE --listen 127.0.0.1:0 extra", "doctor extra",
])
def test_wrong_usage_is_two(tmp_path, arguments):
    state = tmp_path / "state"
    done = run(*(str(state) if word == "STATE" else word for word in arguments.split()))
    assert done.returncode == 2, done
    assert done.stderr and done.stdout == ""
    assert not state.exists(), "wrong usage makes nothing"


def test_keys(server):
    state = ("--state", server.state)
    added = run("keys", "add", "a name é", *state)
    assert added.returncode == 0
    key = added.stdout.strip()
    assert re.fullmatch(r"psbx_[A-Za-z0-9_-]{40,}", key)
    as_json = json.loads(run("keys", "add", "second", "--json", *state).stdout)
    assert as_json["name"] == "second" and as_json["key"].startswith("psbx_") and as_json["key"] != key
    rows = {row["name"]: row for row in json.loads(run("keys", "list", "--json", *state).stdout)}
    assert rows["a name é"]["lastUsedAt"] is None and rows["a name é"]["revokedAt"] is None
    listing = run("keys", "list", *state).stdout
    assert "a name é" in listing and "never used" in listing
    for text in (listing, json.dumps(rows)):
        assert key not in text and as_json["key"] not in text, "a key is shown once"
    # usable at once, while the server runs; and refused at once when revoked
    client = server.client(key=key)
    assert client.tool("sandbox_list", {}).data is not None
    until(lambda: {row["name"]: row for row in json.loads(run("keys", "list", "--json", *state).stdout)}["a name é"]["lastUsedAt"])
    assert run("keys", "revoke", rows["a name é"]["id"], *state).returncode == 0
    assert client.rest("GET", "/v1/boxes")[0] == 401
    with pytest.raises(McpError):
        client.tool("sandbox_list", {})
    assert run("keys", "revoke", "second", *state).returncode == 0, "by name as well"
    again = run("keys", "revoke", "second", *state)
    assert again.returncode == 1 and "second" in again.stderr
    for wrong in ("", "x" * 61):
        done = run("keys", "add", wrong, *state)
        assert done.returncode == 1 and "1 to 60" in done.stderr, wrong
    assert server.client().tool("sandbox_list", {}).data is not None, "the others still work"


def test_a_revoked_key_ends_sessions_too(server):
    key = server.key("short-lived")
    client = server.client(key=key)
    assert client.session
    run("keys", "revoke", "short-lived", "--state", server.state)
    server.keys.pop("short-lived")
    status, _, _ = client.rest("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers={"Accept": "application/json, text/event-stream"})
    assert status == 401


def test_doctor():
    done = run("doctor", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and done.stderr == ""
    assert {"cgroup", "net", "disk", "seccomp", "idmap"} <= set(found["features"])
    assert all(entry["what"] and entry["cost"] for entry in found["missing"])
    text = run("doctor").stdout
    assert ("Nothing is missing" in text) == (not found["missing"])


def test_status(server):
    done = run("status", "--json", "--state", server.state)
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert (found["running"], found["ready"], found["url"], found["pid"]) == (True, True, server.url, server.process.pid)
    assert server.url in run("status", "--state", server.state).stdout
    with tempfile.TemporaryDirectory() as empty:
        done = run("status", "--json", "--state", empty)
        assert done.returncode == 1
        assert json.loads(done.stdout)["running"] is False
        done = run("status", "--state", empty)
        assert done.returncode == 1 and "no server runs" in done.stderr


def sysctls():
    found = {}
    for name in ("net/ipv4/ip_forward", "fs/inotify/max_user_instances", "fs/inotify/max_user_watches", "kernel/pid_max", "kernel/pty/max"):
        path = Path("/proc/sys") / name
        if path.exists():
            found[name] = path.read_text().strip()
    return found


def others():
    return set(os.listdir("/run/psbx/instances")) if Path("/run/psbx/instances").exists() else set()


def test_up_and_down():
    before, neighbours = sysctls(), others()
    trace = Instance()  # only to look for what is left: the server is made by `up`
    state = trace.state
    try:
        done = run("up", "--json", "--state", state, "--listen", "127.0.0.1:0")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", said["url"]) and said["key"].startswith("psbx_")
        assert said["output"].startswith(f"hello from {said['box']}")
        trace.url, trace.port = said["url"], urllib.parse.urlsplit(said["url"]).port
        trace._note_names()
        client = McpClient(said["url"], said["key"])
        client.initialize()
        assert client.exec(said["box"], "echo inside")["stdout"] == "inside\n"
        client.close()
        again = json.loads(run("up", "--json", "--state", state, "--listen", "127.0.0.1:0").stdout)
        assert {name: again[name] for name in ("url", "key", "box")} == {name: said[name] for name in ("url", "key", "box")}
        words = run("up", "--state", state, "--listen", "127.0.0.1:0").stdout
        assert f"parallelsandbox image build debian --state {state}" in words, "how to get the image to work with"
        assert json.loads(run("status", "--json", "--state", state).stdout)["ready"] is True
        assert said["key"] not in (state / "server.log").read_text()
        assert run("down", "--state", state).returncode == 0
        assert not trace.left()
        assert not [name for name in trace.instance_names if any(name in other for other in others())]
        if not (neighbours | others()):
            assert sysctls() == before
        assert json.loads(run("status", "--json", "--state", state).stdout)["running"] is False
        assert run("down", "--state", state).returncode == 0, "twice is no fault"
        # the state is kept: the same key works again, and the removed box is not called lost
        third = json.loads(run("up", "--json", "--state", state, "--listen", "127.0.0.1:0").stdout)
        assert third["key"] == said["key"] and third["box"] != said["box"]
        trace._note_names()
        client = McpClient(third["url"], third["key"])
        client.initialize()
        assert [row["id"] for row in client.tool("sandbox_list", {})["boxes"]] == [third["box"]]
        client.close()
        assert run("down", "--purge", "--state", state).returncode == 0
        assert not trace.left() and not state.exists()
    finally:
        run("down", "--purge", "--state", state)
        trace.sweep()


def test_up_says_why_it_cannot(server):
    trace = Instance()
    try:
        done = run("up", "--state", trace.state, "--listen", f"127.0.0.1:{server.port}")
        assert done.returncode == 1
        assert "in use" in done.stderr.lower()
        until(lambda: not trace.processes())
        trace._note_names()
        assert run("down", "--purge", "--state", trace.state).returncode == 0
        assert not trace.left() and not trace.state.exists()
    finally:
        run("down", "--purge", "--state", trace.state)
        trace.sweep()
