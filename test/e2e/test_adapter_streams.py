"""The adapter's streams and connections when they break, and its stdout whatever happens."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import time

import pytest

from adapter_scripted import adapter, binary, line, script  # noqa: F401
from scripted_server import text_result


# --- streams that are taken up again ----------------------------------------------------------------------
def resumable(script, act, again):
    """act on the POST's stream, which has ids; again(call, last id) on each GET."""
    script.sessions = True

    def post(call):
        script.begun = call
        call.stream()
        call.prime("s-0", retry=script.retry)
        act(call)

    script.retry = 200
    script.on_tool["sandbox_exec"] = post
    script.on_resume = again


@pytest.mark.parametrize("ending", ["end", "drop"])
def test_a_stream_that_broke_is_taken_up_where_it_was_left(script, adapter, ending):
    one = adapter()
    asked = []

    def act(call):
        call.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": call.token, "progress": 1}}, "s-1")
        time.sleep(0.2)  # a reset takes away what was not read yet
        getattr(call, ending)()

    def again(call, last):
        asked.append((last, call.headers.get("Mcp-Session-Id"), call.headers.get("Accept"), time.monotonic()))
        call.stream()
        call.prime(f"s-1{len(asked)}")
        if len(asked) < 3:
            call.end()
        else:
            call.event({"jsonrpc": "2.0", "id": script.begun.id, "result": text_result({"ok": 1})}, "s-2")
            call.end()

    resumable(script, act, again)
    begun = time.monotonic()
    result = one.tool("sandbox_exec", {"id": "b"}, progress="p")
    assert result.data == {"ok": 1} and len(script.calls) == 1 and result.progress
    assert [a[0] for a in asked] == ["s-1", "s-11", "s-12"] and asked[0][3] - begun > 0.15
    assert asked[0][1] == script.session and asked[0][2] == "text/event-stream"


@pytest.mark.parametrize("status", [404, 400, 405])
def test_a_stream_the_server_does_not_know_any_more_is_lost(script, adapter, status):
    one = adapter()
    resumable(script, lambda call: call.end(), lambda call, _last: call.status(status))
    begun = time.monotonic()
    result = one.tool("sandbox_exec", {"id": "b"})
    assert result.is_error and "sandbox_procs" in result.text and time.monotonic() - begun < 3 and len(script.calls) == 1


def test_a_server_that_vanished_with_the_stream_gets_a_few_seconds(script, adapter):
    one = adapter()
    resumable(script, lambda call: (script.httpd.socket.close(), time.sleep(0.2), call.drop()), lambda call, _: call.drop())
    begun = time.monotonic()
    result = one.tool("sandbox_exec", {"id": "b"})
    assert result.is_error and "sandbox_procs" in result.text and 4 < time.monotonic() - begun < 10


def test_cancelling_between_two_streams(script, adapter):
    one = adapter()
    resumable(script, lambda call: call.end(), lambda call, _last: call.gone())
    script.retry = 5000
    one.send({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "sandbox_exec", "arguments": {"id": "b"}}})
    assert script.wait(lambda: script.calls)
    time.sleep(0.3)
    one.notify("notifications/cancelled", {"requestId": "x"})
    assert script.wait(lambda: [m for m in script.messages if m.get("method") == "notifications/cancelled"])
    assert one.request("ping") == {} and not [m for m in one.messages if m.get("id") == "x"]


def test_silence_over_several_streams(script, adapter):
    one = adapter(PSBX_ADAPTER_SILENCE_MS="900")

    def again(call, _last):
        call.stream()
        call.gone()

    resumable(script, lambda call: call.end(), again)
    result = one.tool("sandbox_exec", {"id": "b"})
    assert result.is_error and "carried nothing" in result.text


# --- connections ------------------------------------------------------------------------------------------
def test_calls_share_a_connection_and_none_is_sent_twice(script, adapter):
    one = adapter()
    peers = []

    def act(call):
        peers.append(call.handler.client_address)
        if len(peers) == 3:
            call.drop()
        else:
            call.json(text_result({"n": len(peers)}))

    script.on_tool["sandbox_exec"] = act
    assert one.tool("sandbox_exec", {"id": "b"}).data == {"n": 1}
    assert one.tool("sandbox_exec", {"id": "b"}).data == {"n": 2}
    assert peers[0] == peers[1]
    assert one.tool("sandbox_exec", {"id": "b"}).is_error and len(peers) == 3
    assert one.tool("sandbox_exec", {"id": "b"}).data == {"n": 4}


def test_503_in_html(script, adapter):
    one = adapter(PSBX_ADAPTER_UNAVAILABLE_FIRST_MS="50")

    def act(call):
        if len(script.calls) < 3:
            call.handler.answer(503, "text/html", b"<html>Service <b>Unavailable</b></html>", {"Retry-After": "0"})
        else:
            call.json(text_result({"ok": 1}))

    script.on_tool["sandbox_exec"] = act
    assert one.tool("sandbox_exec", {"id": "b"}).data == {"ok": 1}


# --- stdout -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("level", ["error", "warning", "info", "debug"])
def test_stdout_is_pure_at_every_log_level(script, adapter, level):
    one = adapter(PSBX_LOG_LEVEL=level)
    script.on_tool["sandbox_exec"] = lambda call: call.drop()
    one.tools()
    one.tool("sandbox_exec", {"id": "b"})
    assert one.close() == 0 and not one.stray


def test_a_crash_writes_nothing_to_stdout(script, adapter):
    one = adapter()
    one.tools()
    one.process.send_signal(signal.SIGSEGV)
    one.process.wait(20)
    time.sleep(0.1)
    assert not one.stray and one.process.returncode in (-signal.SIGSEGV, -signal.SIGABRT, 1)


def test_out_of_memory_writes_nothing_to_stdout(script):
    if os.environ.get("PSBX_SANITIZED"):
        pytest.skip("sanitizers reserve more address space than this test leaves")

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    process = subprocess.Popen([binary()], env=script.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=limit)
    blob = line(id=1, method="ping") + b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_exec","arguments":{"x":['
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(blob + b"{},"[:3] * 15_000_000)
        process.stdin.write(b'{}]}}}\n' + line(id=3, method="ping"))
        process.stdin.flush()
    out, _ = process.communicate(timeout=60)
    for row in out.splitlines():
        assert json.loads(row)["jsonrpc"] == "2.0"
    assert json.loads(out.splitlines()[0])["id"] == 1
