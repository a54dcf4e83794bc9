"""The adapter against a server that does what the test says: stdio, calls, lost answers, presence, endings."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from adapter_scripted import adapter, binary, line, META, NO_SERVER, raw, script, TOP  # noqa: F401
from mcpclient import McpError, StdioMcp
from scripted_server import text_result


# --- stdio ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("asked, told", [("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-06-18"), ("2025-03-26", "2025-03-26"),
                                         ("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25"), ("2026-07-28", "2025-11-25")])
def test_initialize_needs_no_server(asked, told):
    answers, code, _ = raw(NO_SERVER, line(id=0, method="initialize", params={"protocolVersion": asked}))
    assert answers[0]["id"] == 0 and answers[0]["result"]["protocolVersion"] == told and code == 0
    assert answers[0]["result"]["capabilities"] == {"tools": {"listChanged": True}}


def test_malformed_lines_are_answered_and_survived():
    answers, code, _ = raw(NO_SERVER, b'{"jsonrpc":\n\n  \r\n' + line(id="a", method="ping") + b"\xff\xfe\n" + line(id="b", method="ping"))
    assert [a.get("error", {}).get("code") for a in answers] == [-32700, None, -32700, None] and code == 0
    assert [a["id"] for a in answers] == [None, "a", None, "b"]


def test_batches_and_odd_messages_are_refused():
    answers, _, _ = raw(NO_SERVER, b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n3\n{"id":1,"method":"ping"}\n'
                        + line(id=None, method="ping") + line(id=1.5, method="ping") + line(id=2, method="ping", params=[1])
                        + line(id=3, method="no/such") + line(id=4))
    assert [a["error"]["code"] for a in answers] == [-32600, -32600, -32600, -32600, -32600, -32602, -32601, -32600]


def test_discover_needs_no_server():
    answers, code, _ = raw(NO_SERVER, line(id="d", method="server/discover", params={"_meta": META}))
    result = answers[0]["result"]
    assert result["supportedVersions"] == ["2026-07-28"] and result["resultType"] == "complete" and code == 0
    assert result["capabilities"] == {"tools": {"listChanged": True}} and result["ttlMs"] > 0 and result["cacheScope"] == "private"
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "parallelsandbox"


def test_what_a_modern_request_must_have():
    other = {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}
    answers, _, _ = raw(NO_SERVER, line(id=1, method="server/discover", params={})
                        + line(id=2, method="server/discover", params={"_meta": other})
                        + line(id=3, method="initialize", params={"_meta": META}) + line(id=4, method="ping", params={"_meta": META})
                        + line(id=5, method="tools/call", params={"_meta": {**META, "io.modelcontextprotocol/clientCapabilities": 1}}))
    assert [a["error"]["code"] for a in answers] == [-32602, -32022, -32601, -32601, -32602]
    assert answers[1]["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2031-01-01"}


def test_lines_in_any_pieces():
    text = line(id="é😀", method="ping")
    cut = text.index(b"\\u") if b"\\u" in text else 10
    utf8 = '{"jsonrpc":"2.0","id":"é😀","method":"ping"}\r\n'.encode()
    answers, _, _ = raw(NO_SERVER, [text[:cut], text[cut:] + utf8[:26], utf8[26:27], utf8[27:] + line(id=1, method="ping") * 3])
    assert [a["id"] for a in answers] == ["é😀", "é😀", 1, 1, 1]


def test_long_line(script, adapter):
    one = adapter()
    script.on_tool["sandbox_exec"] = lambda call: call.json(text_result({"n": len(call.args["blob"])}))
    assert one.tool("sandbox_exec", {"blob": "x" * 17_000_000, "background": True}).data == {"n": 17_000_000}


def test_last_line_without_line_end():
    answers, code, _ = raw(NO_SERVER, line(id=1, method="ping").rstrip())
    assert answers[0]["id"] == 1 and code == 0


def test_without_a_key(tmp_path):
    answers, code, _ = raw({"PARALLELSANDBOX_MCP_URL": "http://127.0.0.1:1/mcp", "HOME": str(tmp_path)},
                           line(id=1, method="initialize", params={}) + line(id=2, method="tools/list")
                           + line(id=3, method="tools/call", params={"name": "sandbox_list"}))
    by_id = {a["id"]: a for a in answers}
    assert [tool["name"] for tool in by_id[2]["result"]["tools"]] == ["parallelsandbox_connect"] and code == 0
    assert by_id[3]["result"]["isError"] and "parallelsandbox_connect" in by_id[3]["result"]["content"][0]["text"]
    assert not list(tmp_path.iterdir())


def test_unusable_url_is_said_plainly():
    done = subprocess.run([binary()], env={"PARALLELSANDBOX_MCP_URL": "ftp://x"}, capture_output=True, input=b"", check=False)
    assert done.returncode == 2 and b"PARALLELSANDBOX_MCP_URL" in done.stderr and done.stdout == b""


def test_wire_probe(script):
    shared = Path(os.environ.get("PSBX_SHARED") or TOP.parent / "shared")
    probe = shared / "probes" / "mcp_probe.mjs"
    if not probe.exists() or not shutil.which("node"):
        pytest.skip(f"{probe} or node is not there")

    def slow(call):
        call.stream()
        for n in range(40):
            call.progress(n)
            time.sleep(0.1)
        call.result(text_result({"exitCode": 0}))
        call.end()

    script.on_tool["sandbox_exec"] = slow
    done = subprocess.run(["node", probe, "--stdio", "--slow", "sandbox_exec", "--slow-args", '{"id":"b","cmd":"x"}', "--", binary()],
                          env={"PATH": os.environ["PATH"], **script.env()}, capture_output=True, text=True, timeout=120, check=False)
    failed = [row for row in done.stdout.splitlines() if row.startswith(("FAIL", "WARN"))]
    assert not failed and "PASS" in done.stdout, done.stdout


# --- tool list --------------------------------------------------------------------------------------------
def test_tool_list_is_fetched_once_and_passed_on(script, adapter):
    one = adapter()
    assert not script.seen  # nothing happened before it was asked
    assert list(one.tools()) == [t["name"] for t in script.tools]
    one.tools()
    assert [m["method"] for m in script.messages].count("tools/list") == 1


def test_tool_list_of_a_missing_server():
    begun = time.monotonic()
    one = StdioMcp([binary()], env=NO_SERVER)
    one.initialize()
    with pytest.raises(McpError, match="could not be fetched from http://127.0.0.1:1/mcp"):
        one.tools()
    assert time.monotonic() - begun < 5
    assert one.request("ping") == {}
    assert one.close() == 0


def test_tool_list_comes_when_the_server_comes(script, adapter):
    script.list_status = 503
    one = adapter(PSBX_ADAPTER_TOOLS_CHECK_MS="300")
    with pytest.raises(McpError, match="503"):
        one.tools()
    script.list_status = 200
    one.wait(lambda m: m.get("method") == "notifications/tools/list_changed", 5)
    assert "sandbox_exec" in one.tools()


def test_changed_tool_list_is_told_once(script, adapter):
    one = adapter(PSBX_ADAPTER_TOOLS_CHECK_MS="200")
    one.tools()
    time.sleep(0.7)
    assert not [m for m in one.messages if m.get("method") == "notifications/tools/list_changed"]
    script.tools = [*script.tools, {"name": "sandbox_new", "inputSchema": {"type": "object"}}]
    one.wait(lambda m: m.get("method") == "notifications/tools/list_changed", 5)
    time.sleep(0.7)
    assert len([m for m in one.messages if m.get("method") == "notifications/tools/list_changed"]) == 1
    assert "sandbox_new" in one.tools()


def test_an_is_required_error_compares_the_list(script, adapter):
    one = adapter()
    one.tools()
    script.on_tool["sandbox_exec"] = lambda call: call.json(text_result("`note` is required: …", is_error=True))
    script.tools = script.tools[:1]
    assert one.tool("sandbox_exec", {"id": "b"}).is_error
    one.wait(lambda m: m.get("method") == "notifications/tools/list_changed", 5)


# --- calls ------------------------------------------------------------------------------------------------
def test_result_passes_unchanged(script, adapter):
    one = adapter()
    result = {"content": [{"type": "text", "text": "ä\n\u2028"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}],
              "structuredContent": {"big": 12345678901234567890, "f": 1.0, "e": 1e400 if False else 1e30}, "_meta": {"a/b": [1]}}
    script.on_tool["sandbox_list"] = lambda call: call.json(result)
    assert one.request("tools/call", {"name": "sandbox_list", "arguments": {}, "_meta": {"x/y": {"z": 1}}}) == result
    sent = script.calls[0]
    assert sent["_meta"] == {"x/y": {"z": 1}} and sent["arguments"] == {}


def test_pretty_printed_answers_stay_one_line(script, adapter):
    one = adapter()

    def pretty(call):
        call.handler.answer(200, "application/json; charset=utf-8",
                            json.dumps({"jsonrpc": "2.0", "id": call.id, "result": text_result({"a": 1})}, indent=2).encode())

    script.on_tool["sandbox_list"] = pretty
    assert one.tool("sandbox_list").data == {"a": 1}


def test_headers_of_every_call(script, adapter):
    one = adapter(PSBX_TOOL_TIMEOUT_SEC="100.9")
    script.on_tool["sandbox_list"] = lambda call: call.json(text_result({}))
    one.tool("sandbox_list")
    one.tool("sandbox_list")
    script.wait(lambda: script.beats)
    agents = set()
    for path, headers in script.seen:
        assert headers["Authorization"] == f"Bearer {script.key}", path
        assert headers["X-Psbx-Client"] == "probe/7.1"
        assert headers["X-Psbx-Tool-Wait-Sec"] == headers["X-Psbx-Review-Wait-Sec"] == "65"
        agents.add(headers["X-Psbx-Agent"])
    assert len(agents) == 1 and re.fullmatch(r"[A-Za-z0-9_-]{12}", agents.pop())


def test_unknown_tool_is_the_servers_error(adapter):
    with pytest.raises(McpError) as told:
        adapter().tool("no_such")
    assert told.value.code == -32602


def test_refused_key(script, adapter):
    one = adapter()
    script.key = "psbx_other"
    result = one.tool("sandbox_list")
    assert result.is_error and "PARALLELSANDBOX_API_KEY" in result.text and "Nothing ran" in result.text


def test_session_is_kept_and_made_anew_once(script, adapter):
    script.sessions = True
    script.on_tool["sandbox_list"] = lambda call: call.json(text_result({"session": call.headers["Mcp-Session-Id"]}))
    one = adapter()
    first = one.tool("sandbox_list").data["session"]
    assert one.tool("sandbox_list").data["session"] == first
    script.session = "forgotten"
    assert one.tool("sandbox_list").data["session"] not in (first, "forgotten")
    assert [m.get("method") for m in script.messages].count("initialize") == 2


def test_ids_and_tokens_are_our_own(script, adapter):
    one = adapter()

    def act(call):
        assert call.token == call.id and isinstance(call.id, int)
        call.stream()
        call.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "tok", "progress": 9}})
        call.event({"jsonrpc": "2.0", "id": 999999, "result": {"content": []}})
        call.progress(0.5, total=2, message="half ✓")
        call.progress(1, total=2)
        call.result(text_result({"ok": 1}))
        call.end()

    script.on_tool["sandbox_exec"] = act
    for request_id, token in (("ü", "tok"), (0, 0), (-7, 2**53 - 1), ("", "")):
        before = len(one.messages)
        params = {"name": "sandbox_exec", "arguments": {"id": "b"}, "_meta": {"progressToken": token}}
        assert one.request("tools/call", params, request_id=request_id)["structuredContent"] == {"ok": 1}
        said = [m["params"] for m in one.messages[before:] if m.get("method") == "notifications/progress"]
        assert said == [{"progressToken": token, "progress": 0.5, "total": 2, "message": "half ✓"},
                        {"progressToken": token, "progress": 1, "total": 2}]


def test_progress_never_goes_backwards(script, adapter):
    one = adapter()

    def act(call):
        call.stream()
        call.say("sandbox_exec still running")
        call.progress(5)
        call.progress(3)
        call.say("not told again")
        call.progress(6)
        call.result(text_result({}))
        call.end()

    script.on_tool["sandbox_exec"] = act
    said = one.tool("sandbox_exec", {"id": "b"}, progress=1).progress
    values = [p["progress"] for p in said]
    assert values == sorted(set(values)) and 5 in values and 6 in values
    assert "still running" in said[0]["message"] and len(said) == 4


def test_no_progress_without_a_token(script, adapter):
    one = adapter()

    def act(call):
        assert call.token is None
        call.stream()
        call.say("still running")
        call.result(text_result({}))
        call.end()

    script.on_tool["sandbox_exec"] = act
    assert not one.tool("sandbox_exec", {"id": "b"}).notifications


def test_bytes_on_the_connection_become_progress(script, adapter):
    one = adapter()

    def act(call):
        call.stream()
        for _ in range(24):
            call.comment()
            time.sleep(0.5)
        call.result(text_result({}))
        call.end()

    script.on_tool["sandbox_exec"] = act
    assert len(one.tool("sandbox_exec", {"id": "b"}, progress="p").progress) == 1


def test_server_questions_are_answered(script, adapter):
    one = adapter()

    def act(call):
        call.stream()
        call.event({"jsonrpc": "2.0", "id": "q1", "method": "ping"})
        call.event({"jsonrpc": "2.0", "id": "q2", "method": "elicitation/create", "params": {}})
        script.wait(lambda: {"q1", "q2"} <= {m.get("id") for m in script.messages if "method" not in m})
        call.result(text_result({}))
        call.end()

    script.on_tool["sandbox_exec"] = act
    one.tool("sandbox_exec", {"id": "b"})
    answers = {m["id"]: m for m in script.messages if "method" not in m}
    assert answers["q1"]["result"] == {} and answers["q2"]["error"]["code"] == -32601


@pytest.mark.parametrize("request_id", ["c", 0])
def test_cancelling(script, adapter, request_id):
    one = adapter()
    ended = threading.Event()

    def act(call):
        call.stream()
        call.comment()
        if call.gone():
            ended.set()

    script.on_tool["sandbox_exec"] = act
    one.send({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": {"name": "sandbox_exec", "arguments": {"id": "b"}}})
    assert script.wait(lambda: script.calls)
    time.sleep(0.1)
    one.notify("notifications/cancelled", {"requestId": "other"})
    one.notify("notifications/cancelled", {"requestId": str(request_id) if request_id == 0 else 0})
    assert not ended.wait(0.2)
    one.notify("notifications/cancelled", {"requestId": request_id, "reason": "test"})
    assert ended.wait(3)
    assert script.wait(lambda: [m for m in script.messages if m.get("method") == "notifications/cancelled"])
    upstream = next(m for m in script.messages if m.get("method") == "tools/call")["id"]
    told = next(m for m in script.messages if m.get("method") == "notifications/cancelled")
    assert told["params"]["requestId"] == upstream
    assert one.request("ping", request_id="after") == {}
    assert not [m for m in one.messages[1:] if m.get("id") == request_id and "params" not in m]


def test_calls_run_side_by_side(script, adapter):
    one = adapter()
    gate = threading.Barrier(8)

    def act(call):
        gate.wait(10)
        call.json(text_result({"n": call.args["n"]}))

    script.on_tool["sandbox_exec"] = act
    for n in range(8):
        one.send({"jsonrpc": "2.0", "id": f"n{n}", "method": "tools/call", "params": {"name": "sandbox_exec", "arguments": {"id": "b", "n": n}}})
    assert one.request("ping") == {}
    for n in range(8):
        answer = one.wait(lambda m, n=n: m.get("id") == f"n{n}", 10)
        assert answer["result"]["structuredContent"] == {"n": n}


# --- lost answers -----------------------------------------------------------------------------------------
def test_ended_stream_of_an_exec_names_the_way_to_its_result(script, adapter):
    one = adapter()

    def act(call):
        call.stream()
        call.comment()
        call.end()

    script.on_tool["sandbox_exec"] = act
    begun = time.monotonic()
    result = one.tool("sandbox_exec", {"id": "box1", "cmd": "make", "note": "n"})
    assert result.is_error and time.monotonic() - begun < 6
    exec_id = script.calls[0]["arguments"]["execId"]
    assert exec_id in result.text and "sandbox_procs" in result.text and '"box1"' in result.text
    assert len(script.calls) == 1


def test_exec_id_is_left_alone(script, adapter):
    one = adapter()
    script.on_tool["sandbox_exec"] = lambda call: call.json(text_result({}))
    one.tool("sandbox_exec", {"id": "b", "execId": "mine"})
    one.tool("sandbox_exec", {"id": "b", "background": True})
    assert [c["arguments"].get("execId") for c in script.calls] == ["mine", None]


@pytest.mark.parametrize("tool", ["sandbox_list", "sandbox_get", "sandbox_report", "sandbox_versions", "sandbox_secrets",
                                  "sandbox_environments", "logs_search", "logs_tail", "sandbox_shot"])
def test_harmless_tools_are_tried_twice(script, adapter, tool):
    one = adapter()
    script.on_tool[tool] = lambda call: call.drop() if len(script.calls) == 1 else call.json(text_result({"ok": 1}))
    assert one.tool(tool, {"id": "b"}).data == {"ok": 1}
    script.calls.clear()
    script.on_tool[tool] = lambda call: call.drop()
    result = one.tool(tool, {"id": "b"})
    assert result.is_error and len(script.calls) == 2


@pytest.mark.parametrize("tool, args", [("sandbox_exec", {}), ("sandbox_status", {}), ("sandbox_stop", {}), ("sandbox_build", {}),
                                        ("sandbox_review", {}), ("sandbox_shot", {"record": "start"})])
def test_all_others_never(script, adapter, tool, args):
    one = adapter()
    script.on_tool[tool] = lambda call: call.drop()
    result = one.tool(tool, {"id": "b", **args})
    assert result.is_error and len(script.calls) == 1
    assert "may have run" in result.text or "sandbox_procs" in result.text


def test_silence(script, adapter):
    one = adapter(PSBX_ADAPTER_SILENCE_MS="600")

    def act(call):
        call.stream()
        for _ in range(6):
            call.comment()
            time.sleep(0.25)
        call.gone()

    script.on_tool["sandbox_exec"] = act
    begun = time.monotonic()
    result = one.tool("sandbox_exec", {"id": "b"})
    assert result.is_error and "carried nothing" in result.text and 1.8 < time.monotonic() - begun < 4


def test_silence_before_the_first_byte(script, adapter):
    one = adapter(PSBX_ADAPTER_SILENCE_MS="500")
    script.on_tool["sandbox_list"] = lambda call: call.gone()
    begun = time.monotonic()
    assert one.tool("sandbox_list").is_error
    assert len(script.calls) == 2 and time.monotonic() - begun < 4


def test_a_machine_that_slept_was_not_silent(script, adapter):
    one = adapter(PSBX_ADAPTER_SILENCE_MS="1200")

    def act(call):
        call.stream()
        for _ in range(30):
            call.comment()
            time.sleep(0.2)
        call.result(text_result({"ok": 1}))
        call.end()

    script.on_tool["sandbox_exec"] = act
    threading.Timer(0.7, one.process.send_signal, [signal.SIGSTOP]).start()
    threading.Timer(3.0, one.process.send_signal, [signal.SIGCONT]).start()
    assert one.tool("sandbox_exec", {"id": "b"}).data == {"ok": 1}


def test_503_is_waited_for_whatever_the_tool(script, adapter):
    one = adapter(PSBX_ADAPTER_UNAVAILABLE_FIRST_MS="100")

    def act(call):
        if len(script.calls) < 3:
            call.status(503, {"error": "maintenance", "reason": "maintenance", "retryAfterSec": 0})
        else:
            call.json(text_result({"ok": 1}))

    script.on_tool["sandbox_stop"] = act
    assert one.tool("sandbox_stop", {"id": "b"}).data == {"ok": 1}


def test_503_for_too_long(script, adapter):
    one = adapter(PSBX_ADAPTER_UNAVAILABLE_FIRST_MS="100", PSBX_ADAPTER_UNAVAILABLE_BUDGET_MS="600")
    script.on_tool["sandbox_exec"] = lambda call: call.status(503, {"error": "being updated", "reason": "maintenance"})
    result = one.tool("sandbox_exec", {"id": "b"})
    assert result.is_error and "Nothing ran" in result.text and "maintenance" in result.text
    assert re.search(r"for 0\.\d s \(since \d{4}-.*Z, \d tries\)", result.text), result.text


def test_server_that_is_not_there_yet(script, adapter):
    one = adapter(PSBX_ADAPTER_NOT_SENT_DELAY_MS="100", PSBX_ADAPTER_UNAVAILABLE_BUDGET_MS="20000")
    script.on_tool["sandbox_exec"] = lambda call: call.json(text_result({"ok": 1}))
    script.stop()
    threading.Timer(0.6, script.start).start()
    result = one.tool("sandbox_exec", {"id": "b"})
    assert result.data == {"ok": 1}, result
    assert len(script.calls) == 1


def test_cancelling_while_waiting_for_the_server(script, adapter):
    one = adapter(PSBX_ADAPTER_NOT_SENT_DELAY_MS="100")
    script.stop()
    one.send({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": {"name": "sandbox_exec", "arguments": {"id": "b"}}})
    time.sleep(0.4)
    one.notify("notifications/cancelled", {"requestId": "w"})
    time.sleep(0.4)
    assert one.request("ping") == {} and not [m for m in one.messages if m.get("id") == "w"]
    script.start()


def box_row(**more):
    return {"id": "box9", "name": "n", "goal": "g", "createdAt": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()),
            "agent": {"state": "working", "thisConversation": True}, **more}


def test_lost_start_names_its_box_and_is_not_made_twice(script, adapter):
    one = adapter()
    script.on_tool["sandbox_start"] = lambda call: call.drop()
    script.on_tool["sandbox_list"] = lambda call: call.json(text_result({"boxes": [box_row(goal="other"), box_row()]}))
    result = one.tool("sandbox_start", {"goal": "g", "name": "n"})
    assert result.is_error and "box9" in result.text
    again = one.tool("sandbox_start", {"goal": "g", "name": "n"})
    assert again.data["id"] == "box9" and [c["name"] for c in script.calls].count("sandbox_start") == 1
    script.on_tool["sandbox_start"] = lambda call: call.json(text_result({"id": "new"}))
    assert one.tool("sandbox_start", {"goal": "g", "name": "n"}).data["id"] == "new"


def test_start_cut_by_the_host(script, adapter):
    one = adapter()
    script.on_tool["sandbox_start"] = lambda call: call.gone()
    script.on_tool["sandbox_list"] = lambda call: call.json(text_result({"boxes": [box_row()]}))
    one.send({"jsonrpc": "2.0", "id": "s", "method": "tools/call", "params": {"name": "sandbox_start", "arguments": {"goal": "g"}}})
    assert script.wait(lambda: script.calls)
    one.notify("notifications/cancelled", {"requestId": "s"})
    time.sleep(0.2)
    assert one.tool("sandbox_start", {"goal": "g"}).data["id"] == "box9"
    assert [c["name"] for c in script.calls].count("sandbox_start") == 1


# --- presence and endings ---------------------------------------------------------------------------------
def test_presence_starts_with_the_first_tool_call(script, adapter):
    one = adapter()
    one.tools()
    time.sleep(0.2)
    assert not script.beats
    script.on_tool["sandbox_list"] = lambda call: call.json(text_result({}))
    one.tool("sandbox_list")
    assert script.wait(lambda: script.beats)
    agent, what, body = script.beats[0]
    assert what == "heartbeat" and json.loads(body) == {"client": "probe/7.1"}
    assert one.close() == 0
    assert (agent, "leave") == script.beats[-1][:2]


def test_the_session_ends_with_the_program(script, adapter):
    script.sessions = True
    one = adapter()
    one.tools()
    begun = time.monotonic()
    assert one.close() == 0 and time.monotonic() - begun < 1
    assert script.deleted == [("/mcp", script.session)]


@pytest.mark.parametrize("signum, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_signals(script, adapter, signum, code):
    one = adapter()
    script.on_tool["sandbox_list"] = lambda call: call.json(text_result({}))
    one.tool("sandbox_list")
    one.process.send_signal(signum)
    assert one.process.wait(3) == code
    assert script.beats[-1][1] == "leave"


@pytest.mark.parametrize("how, limit, code", [("eof", 1.2, 0), ("term", 2.3, 143)])
def test_ending_with_a_server_that_does_not_answer(script, adapter, how, limit, code):
    one = adapter()
    script.on_tool["sandbox_list"] = lambda call: call.json(text_result({}))
    one.tool("sandbox_list")
    script.on_tool["sandbox_exec"] = lambda call: call.gone(5)
    one.send({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "sandbox_exec", "arguments": {"id": "b"}}})
    assert script.wait(lambda: len(script.calls) == 2)
    script.stop()
    hole = socket.socket()  # takes connections and never answers
    hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    hole.bind(("127.0.0.1", script.port))
    hole.listen(1)
    begun = time.monotonic()
    if how == "eof":
        one.process.stdin.close()
    else:
        one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(5) == code and time.monotonic() - begun < limit
    hole.close()
    script.start()


def test_what_was_asked_just_before_the_end_is_answered(script):
    script.on_tool["sandbox_list"] = lambda call: call.json(text_result({"ok": 1}))
    done = subprocess.run([binary()], env=script.env(), capture_output=True, check=False, timeout=10,
                          input=line(id=1, method="initialize", params={}) + line(id=2, method="tools/call", params={"name": "sandbox_list"}))
    assert [json.loads(x)["id"] for x in done.stdout.splitlines()] == [1, 2] and done.returncode == 0


def test_host_that_stops_reading():
    process = subprocess.Popen([binary()], env=NO_SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.close()
    process.stdin.write(line(id=5, method="ping"))
    process.stdin.flush()
    assert process.wait(3) == 0
