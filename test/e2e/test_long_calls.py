"""Calls that take longer than their caller waits: answered in time with a handle, and nothing is lost (docs/mcp.md)."""

import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from instance import until

HEADER = "X-Psbx-Tool-Wait-Sec"


def run(client, box, cmd, wait=3, progress=None, headers=None, **arguments):
    """A foreground command by a caller that can wait so many seconds; returns (result, seconds)."""
    began = time.monotonic()
    result = client.tool("sandbox_exec", {"id": box, "cmd": cmd, "note": "a long call", **arguments}, progress=progress,
                         headers={HEADER: None if wait is None else str(wait), **(headers or {})}, timeout=120)
    assert not result.is_error, result.text
    return result.data, time.monotonic() - began


def rest(client, box, job, **arguments):
    result = client.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": job, "timeoutSec": 60, **arguments})
    assert not result.is_error, result.text
    return result.data


def test_handle_in_time_and_the_rest_later(client, box):
    data, took = run(client, box, "for i in 1 2 3 4 5 6; do echo line $i; echo err $i >&2; sleep 1; done; exit 3",
                     execId="mine")
    assert data["running"] is True and data["bgId"] == data["execId"] == "mine" and took < 10
    assert data["stdout"].startswith("line 1\nline 2\n") and "line 6" not in data["stdout"]
    assert "exitCode" not in data and data["timedOut"] is False and "sandbox_procs" in data["next"]
    whole = rest(client, box, "mine")
    assert whole["running"] is False and whole["exitCode"] == 3 and whole["endReason"] == "exited"
    assert whole["stdout"] == "".join(f"line {i}\n" for i in range(1, 7))
    assert whole["stderr"] == "".join(f"err {i}\n" for i in range(1, 7))
    assert rest(client, box, "mine")["stdout"] == whole["stdout"]  # also when that answer was lost
    step = client.tool("sandbox_status", {"id": box}).data["steps"][-1]
    assert step["exitCode"] == 3 and not step.get("error")


def test_a_quick_command_is_as_always(client, box):
    data, took = run(client, box, "echo quick")
    assert data["exitCode"] == 0 and data["stdout"] == "quick\n" and data["running"] is False and took < 3
    data, _ = run(client, box, "echo at once", wait=0)  # who can wait for nothing waits for that
    assert data["exitCode"] == 0 and data["stdout"] == "at once\n"


def test_nothing_of_a_large_output_is_lost(client, box):
    data, _ = run(client, box, "seq 1 200000; sleep 5; seq 200001 400000")
    assert data["running"] and data["truncated"] and "1\n2\n" in data["stdout"] and "outputUrl" not in data
    assert "still runs" in data["outputNote"]
    wanted = "".join(f"{i}\n" for i in range(1, 400001)).encode()
    for _ in range(2):
        whole = rest(client, box, data["bgId"])
        assert whole["truncated"] and whole["stdout"].endswith("399999\n400000\n")
        with urllib.request.urlopen(whole["outputUrl"]) as answer:
            assert answer.read() == wanted


def test_input_goes_on(client, box):
    data, _ = run(client, box, "sleep 5; wc -c", stdin="x" * 900000)
    assert data["running"]
    assert rest(client, box, data["bgId"])["stdout"] == "900000\n"


def test_a_wait_of_that_command_gives_up_in_time_too(client, box):
    data, _ = run(client, box, "echo begun; sleep 12; echo done")
    began = time.monotonic()
    waited = client.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": data["bgId"], "timeoutSec": 600},
                         headers={HEADER: "3"})
    assert waited["running"] is True and waited["stdout"] == "begun\n" and time.monotonic() - began < 10
    assert rest(client, box, data["bgId"])["stdout"] == "begun\ndone\n"


def test_a_wait_of_a_background_job_gives_up_in_time(client, box):
    job = client.exec(box, "sleep 300", background=True)["bgId"]
    began = time.monotonic()
    waited = client.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": job, "timeoutSec": 600},
                         headers={HEADER: "3"})
    assert waited["running"] is True and "again" in waited["next"] and time.monotonic() - began < 10
    assert client.tool("sandbox_procs", {"id": box, "action": "stop", "bgId": job})["stopped"] is True


def test_stop(client, box):
    data, _ = run(client, box, "echo begun; exec sleep 299")
    assert client.tool("sandbox_procs", {"id": box, "action": "stop", "bgId": data["bgId"]})["stopped"] is True
    ended = rest(client, box, data["bgId"])
    assert ended["running"] is False and ended["signal"] and ended["stdout"] == "begun\n"
    assert client.exec(box, "pgrep -fxc 'sleep 299'")["stdout"] == "0\n"


def test_its_own_limit_still_holds(client, box):
    data, _ = run(client, box, "echo begun; sleep 100", timeoutSec=5)
    ended = rest(client, box, data["bgId"])
    assert ended["timedOut"] is True and ended["endReason"] == "timeout" and ended["stdout"] == "begun\n"


def test_a_progress_token_keeps_it_whole(client, box):
    data, took = run(client, box, "sleep 5; echo whole", progress="t")
    assert data["exitCode"] == 0 and data["stdout"] == "whole\n" and took > 4.5


def test_a_client_that_ignores_progress(client, box):
    data, took = run(client, box, "sleep 6; echo whole", progress=1, headers={"X-Psbx-Client": "codex-mcp-client/0.150"})
    assert data["running"] is True and took < 5.5
    assert rest(client, box, data["bgId"])["stdout"] == "whole\n"


def test_without_a_declared_limit(server, client, box):
    """Bare clients get their answer before 60 s; those with a token, and adapters that say nothing, wait on."""
    bare = server.client(client=None)
    adapter = server.client(client="some-host/1")
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(run, bare, box, "sleep 56; echo a", None),
                 pool.submit(run, bare, box, "sleep 56; echo b", None, "token"),
                 pool.submit(run, adapter, box, "sleep 56; echo c", None),
                 pool.submit(run, bare, box, "sleep 56; echo d", None, 1, {"X-Psbx-Client": "codex-mcp-client/1"})]
        cut, token, patient, codex = [call.result() for call in calls]
    assert cut[0]["running"] is True and 48 < cut[1] < 55
    assert codex[0]["running"] is True and 48 < codex[1] < 55
    assert token[0]["stdout"] == "b\n" and patient[0]["stdout"] == "c\n"
    assert rest(client, box, cut[0]["bgId"])["stdout"] == "a\n"
    assert rest(client, box, codex[0]["bgId"])["stdout"] == "d\n"


def test_our_adapter(server, client, box, adapter):
    """The host's tool timeout less 35 s is what the adapter declares."""
    host = adapter(PSBX_TOOL_TIMEOUT_SEC="38")
    host.initialize()
    data = host.tool("sandbox_exec", {"id": box, "cmd": "echo one; sleep 6; echo two", "note": "through the adapter"}).data
    assert data["running"] is True and data["stdout"] == "one\n"
    data = host.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": data["bgId"]}).data
    while data["running"]:
        data = host.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": data["bgId"]}).data
    assert data["stdout"] == "one\ntwo\n" and data["exitCode"] == 0


def test_the_server_restarts_meanwhile(new_server):
    server = new_server()
    client = server.client()
    box = client.start()
    data, _ = run(client, box, "echo before; sleep 8; echo after", execId="across")
    assert data["running"] is True
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 10
    server.start()
    again = server.client()
    whole = rest(again, box, "across")
    assert whole["running"] is False and whole["exitCode"] == 0 and whole["stdout"] == "before\nafter\n"
    again.stop(box)


def test_the_box_stops_meanwhile(client):
    box = client.start()
    data, _ = run(client, box, "sleep 300")
    assert data["running"] is True
    client.stop(box)
    client.stop(box)
    result = client.tool("sandbox_procs", {"id": box, "action": "wait", "bgId": data["bgId"]})
    assert result.is_error and box in result.text


def test_waiting_for_room_says_what_became_of_the_place(new_server):
    server = new_server(arguments=("--max-boxes", "1"))
    client = server.client()
    box = client.start()
    began = time.monotonic()
    refused = client.tool("sandbox_start", {"goal": "the second", "waitForCapacitySec": 600}, headers={HEADER: "2"})
    assert refused.is_error and time.monotonic() - began < 10
    assert "place 1" in refused.text and "given up" in refused.text and "nothing was started" in refused.text
    client.stop(box)


@pytest.mark.parametrize("wait", ["30", None])
def test_cancelling_ends_the_command(client, box, wait):
    exchange = client.open("tools/call", {"name": "sandbox_exec", "arguments": {
        "id": box, "cmd": "exec sleep 298", "note": "cancelled"}}, request_id="c", headers={HEADER: wait})
    until(lambda: client.exec(box, "pgrep -fxc 'sleep 298'")["stdout"] == "1\n")
    client.cancel("c")
    until(lambda: client.exec(box, "pgrep -fxc 'sleep 298'")["stdout"] == "0\n")
    exchange.close()
