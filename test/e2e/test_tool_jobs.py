"""Commands that outlive their call: background jobs, sandbox_procs, cancelling, broken connections, still-running messages."""

import hashlib
import re
import threading

import pytest
from instance import until


@pytest.fixture(scope="module")
def one(server):
    client = server.client(agent="jobs-agent")
    name = client.start(size="small")
    yield client, name
    client.stop(name)


def procs(one, action, **arguments):
    client, box = one
    return client.tool("sandbox_procs", {"id": box, "action": action, **arguments})


def background(one, cmd, **arguments):
    client, box = one
    result = client.exec(box, cmd, background=True, **arguments)
    assert set(result.data) >= {"bgId"}
    return result["bgId"]


def sleeping(one, seconds):
    """How many processes of the box sleep for just so long."""
    client, box = one
    return int(client.exec(box, f"pgrep -fxc 'sleep {seconds}'")["stdout"])


def start_call(client, box, cmd, headers=None, **arguments):
    """A foreground sandbox_exec in a thread of its own: (thread, what it said)."""
    said = {}

    def work():
        exchange = client.open("tools/call", {"name": "sandbox_exec", "arguments": {"id": box, "cmd": cmd, "note": "a test", **arguments}},
                               request_id=said["id"], headers=headers)
        said["exchange"] = exchange
        try:
            said["messages"] = list(exchange)
        except (OSError, ValueError, AttributeError) as error:
            said["error"] = error

    said["id"] = f"call-{id(said)}"
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, said


def test_background_and_wait(one):
    job = background(one, "echo out; echo err >&2; sleep 0.3; echo late; exit 4")
    result = procs(one, "wait", bgId=job, timeoutSec=30)
    assert result["running"] is False
    assert result["exitCode"] == 4
    assert result["stdout"] == "out\nlate\n"
    assert result["stderr"] == "err\n"
    again = procs(one, "wait", bgId=job)
    assert (again["exitCode"], again["stdout"]) == (4, "out\nlate\n")


def test_list(one):
    client, _ = one
    job = background(one, "sleep 601 & sleep 601 & wait", note="two that sleep")
    mine = {row["bgId"]: row for row in procs(one, "list")["procs"]}[job]
    assert mine["running"] is True and mine["background"] is True and mine["mine"] is True
    assert mine["note"] == "two that sleep" and "sleep 601" in mine["command"]
    assert mine["startedAt"].endswith("Z")
    row = until(lambda: next((r for r in procs(one, "list")["procs"] if r["bgId"] == job and r["processes"] == 3), None))
    assert row["memoryBytes"] > 0 and row["cpuMs"] >= 0 and row["pid"] > 1
    other = client.tool("sandbox_procs", {"id": one[1], "action": "list"}, headers={"X-Psbx-Agent": "someone-else"})
    assert [row["mine"] for row in other["procs"] if row["bgId"] == job] == [False]
    procs(one, "stop", bgId=job)
    assert job not in [row["bgId"] for row in procs(one, "list")["procs"]]
    ended = {row["bgId"]: row for row in procs(one, "list", all=True)["procs"]}[job]
    assert ended["running"] is False
    assert ended["endReason"]
    assert "exitCode" in ended


def test_foreground_commands_are_listed_too(one):
    client, box = one
    thread, said = start_call(client, box, "sleep 602", execId="fore-1")
    row = until(lambda: next((r for r in procs(one, "list")["procs"] if r["bgId"] == "fore-1"), None))
    assert row["background"] is False
    assert procs(one, "stop", bgId="fore-1")["stopped"] is True
    thread.join(30)
    result = said["messages"][-1]["result"]["structuredContent"]
    assert result["exitCode"] in (143, 137)


def test_stop_ends_every_descendant(one):
    job = background(one, "sleep 603 & setsid sleep 603 & (setsid sh -c 'setsid sleep 603 & exit' &); "
                          "python3 -c 'import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
                          "os.execvp(\"sleep\", [\"sleep\", \"603\"])'; trap '' TERM; sleep 603")
    until(lambda: sleeping(one, 603) == 5)
    assert procs(one, "stop", bgId=job)["running"] is False
    assert sleeping(one, 603) == 0
    again = procs(one, "stop", bgId=job)
    assert not again.is_error or job in again.text


def test_wait_returns_while_it_runs(one):
    job = background(one, "echo first; sleep 604")
    result = until(lambda: (lambda r: r["stdout"] and r)(procs(one, "wait", bgId=job, timeoutSec=1)))
    assert result["running"] is True
    assert "exitCode" not in result.data
    assert result["stdout"] == "first\n"
    procs(one, "stop", bgId=job)


def test_wait_is_bounded_by_the_callers_patience(one):
    client, box = one
    job = background(one, "sleep 605")
    result = client.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": job}, headers={"X-Psbx-Tool-Wait-Sec": "1"})
    assert result["running"] is True
    procs(one, "stop", bgId=job)


def test_until_a_port_answers(one):
    job = background(one, "sleep 0.5; exec python3 -m http.server 8123 --bind 127.0.0.1")
    result = procs(one, "wait", bgId=job, until="ready", readyPort=8123, timeoutSec=60)
    assert result["ready"] is True and result["running"] is True
    client, box = one
    assert client.exec(box, "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123').status)\"")["stdout"] == "200\n"
    procs(one, "stop", bgId=job)


def test_until_a_text_appears(one):
    job = background(one, "echo starting; sleep 0.3; printf 'server is re'; sleep 0.3; echo 'ady now' >&2; echo 'ady now'; sleep 606")
    result = procs(one, "wait", bgId=job, until="ready", readyLog="server is ready now", timeoutSec=60)
    assert result["ready"] is True and result["running"] is True
    procs(one, "stop", bgId=job)


def test_until_never_comes(one):
    job = background(one, "echo nothing of the kind; exit 3")
    result = procs(one, "wait", bgId=job, until="ready", readyLog="ready", timeoutSec=60)
    assert result["ready"] is False and result["running"] is False
    assert result["exitCode"] == 3
    for arguments in ({}, {"readyPort": 1, "readyLog": "x"}):
        result = procs(one, "wait", bgId=job, until="ready", **arguments)
        assert result.is_error and "readyPort" in result.text and "readyLog" in result.text


def test_input(one):
    job = background(one, "while read -r line; do echo \"got $line\"; done; echo end of input")
    assert not procs(one, "input", bgId=job, stdin="one\n").is_error
    procs(one, "wait", bgId=job, until="ready", readyLog="got one", timeoutSec=30)
    assert not procs(one, "input", bgId=job, stdin="two\n", eof=True).is_error
    result = procs(one, "wait", bgId=job, timeoutSec=30)
    assert result["stdout"] == "got one\ngot two\nend of input\n"
    assert procs(one, "input", bgId=job, stdin="late").is_error
    assert "stdin" in procs(one, "input", bgId=job).text


def test_a_background_job_with_stdin(one):
    text = "0123456789" * 90000
    job = background(one, "sha256sum; wc -c", stdin=text)
    result = procs(one, "wait", bgId=job, timeoutSec=30)
    assert result["stdout"].split()[0] == hashlib.sha256(text.encode()).hexdigest()
    assert procs(one, "input", bgId=background(one, "true"), eof=True) is not None


def test_tail(one):
    job = background(one, "seq 1 1000")
    result = procs(one, "wait", bgId=job, timeoutSec=30, tail=3)
    assert result["stdout"] == "[… 3880 bytes left out here, from byte 0 on …]\n998\n999\n1000\n"
    assert result["truncated"] is True and result["outputNote"]


def test_much_output_of_a_job(one):
    job = background(one, "head -c 5000000 /dev/zero | tr '\\0' x; echo the end")
    result = procs(one, "wait", bgId=job, timeoutSec=60)
    assert result["truncated"] is True
    assert result["stdout"].endswith("the end\n")
    assert len(result.content[0]["text"]) < 32 << 10
    status, _, data = one[0].fetch(result["outputUrl"])
    assert (status, data) == (200, b"x" * 5000000 + b"the end\n")
    found = re.search(r"\n\[… (\d+) bytes left out here, from byte (\d+) on …\]\n", result["stdout"])
    assert int(found[1]) + len(result["stdout"]) - len(found[0]) == len(data)
    assert result["stdout"].index("\n[") == int(found[2])


@pytest.mark.parametrize("arguments, words", [
    ({"action": "wait"}, ["bgId", "is required"]),
    ({"action": "stop", "bgId": "nosuchjob"}, ["nosuchjob"]),
    ({"action": "wait", "bgId": "nosuchjob"}, ["nosuchjob"]),
    ({"action": "input", "bgId": "nosuchjob", "stdin": "x"}, ["nosuchjob"]),
    ({"action": "explode"}, ["action", "explode", "list"]),
    ({"action": "list", "colour": 1}, ["colour"]),
])
def test_refusals(one, arguments, words):
    client, box = one
    result = client.tool("sandbox_procs", {"id": box, **arguments})
    assert result.is_error
    for word in words:
        assert word in result.text, result.text


def test_a_lost_connection_does_not_end_the_command(one):
    client, box = one
    _, said = start_call(client, box, "echo begun > /work/begun; echo out 1; sleep 607; echo out 2 >&2; exit 9", execId="lost-1")
    until(lambda: client.exec(box, "cat /work/begun")["stdout"])
    # the call is a plain HTTP request until it takes long: break it where it is
    until(lambda: "exchange" in said or sleeping(one, 607) == 1)
    said["exchange"].close() if "exchange" in said else None
    assert sleeping(one, 607) == 1
    client.exec(box, "pkill -fx 'sleep 607'")
    result = procs(one, "wait", bgId="lost-1", timeoutSec=60)
    assert result["exitCode"] == 9
    assert (result["stdout"], result["stderr"]) == ("out 1\n", "Terminated\nout 2\n")


def test_a_cut_socket_does_not_end_the_command(one):
    import http.client
    import json
    client, box = one
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sandbox_exec", "arguments": {
        "id": box, "cmd": "touch /work/cut; sleep 608; echo went on", "note": "a test", "execId": "cut-1"}}}
    connection = http.client.HTTPConnection(client.parts.hostname, client.parts.port)
    connection.request("POST", "/mcp", json.dumps(body), client.headers())
    until(lambda: client.exec(box, "ls /work/cut")["exitCode"] == 0)
    connection.close()
    until(lambda: sleeping(one, 608) == 1)
    assert procs(one, "wait", bgId="cut-1", timeoutSec=1)["running"] is True
    client.exec(box, "pkill -fx 'sleep 608'")
    assert procs(one, "wait", bgId="cut-1", timeoutSec=60)["stdout"] == "went on\n"


def test_cancelling_ends_the_tree(one):
    client, box = one
    thread, said = start_call(client, box, "sleep 609 & setsid sleep 609 & (setsid sh -c 'sleep 609 & exit' &); sleep 609")
    until(lambda: sleeping(one, 609) == 4)
    client.cancel(said["id"])
    until(lambda: sleeping(one, 609) == 0)
    thread.join(30)
    assert not thread.is_alive()
    assert not any("result" in message for message in said.get("messages", []))
    steps = client.tool("sandbox_status", {"id": box})["steps"]
    assert any("cancelled" in (step.get("error") or "") for step in steps)


def test_cancelling_a_wait_leaves_the_job(one):
    client, box = one
    job = background(one, "sleep 610")
    waiting = {}

    def work():
        exchange = client.open("tools/call", {"name": "sandbox_procs", "arguments": {"id": box, "action": "wait", "bgId": job,
                                                                                      "timeoutSec": 600}}, request_id="wait-1")
        waiting["messages"] = list(exchange)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    until(lambda: client.rest("GET", "/metrics")[2].count(b"psbx_mcp_calls_running 1\n"))
    client.cancel("wait-1")
    thread.join(30)
    assert not thread.is_alive()
    assert sleeping(one, 610) == 1
    procs(one, "stop", bgId=job)


def test_still_running_is_said_every_twenty_seconds(one):
    client, box = one
    result = client.tool("sandbox_exec", {"id": box, "cmd": "sleep 45", "note": "long"}, progress="tok-1")
    assert result["exitCode"] == 0
    said = [message for message in result.messages if "still running" in str(message["data"])]
    assert [message["data"] for message in said] == ["sandbox_exec still running"] * 2
    assert len(result.progress) >= 2 and {note["progressToken"] for note in result.progress} == {"tok-1"}
    values = [note["progress"] for note in result.progress]
    assert values == sorted(set(values)), "progress must grow"
