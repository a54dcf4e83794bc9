"""The adapter between hosts and servers of both eras of the protocol."""

import threading
import time

import pytest

from adapter_scripted import adapter, binary, META, script  # noqa: F401
from mcpclient import McpError, StdioMcp
from scripted_server import text_result


# --- both eras --------------------------------------------------------------------------------------------
def modern(one, method, request_id, **params):
    one.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": {**META, **params.get("_meta", {})}}})
    return one.wait(lambda m: m.get("id") == request_id, 20)


@pytest.fixture
def modern_host(script, tmp_path):
    with StdioMcp([binary()], env=script.env(HOME=str(tmp_path))) as one:
        yield one


@pytest.mark.parametrize("server", ["older", "newer"])
def test_a_modern_host(script, modern_host, server):
    script.modern = server == "newer"
    script.on_tool["sandbox_list"] = lambda call: call.json(text_result({"meta": call.params.get("_meta")}))
    listed = modern(modern_host, "tools/list", 1)["result"]
    assert [t["name"] for t in listed["tools"]] == [t["name"] for t in script.tools]
    assert listed["resultType"] == "complete" and isinstance(listed["ttlMs"], int) and listed["cacheScope"] == "private"
    told = {"dev.example/x": 1, "io.modelcontextprotocol/clientInfo": {"name": "modern-host", "version": "3"}}
    result = modern(modern_host, "tools/call", "c", name="sandbox_list", arguments={}, _meta=told)["result"]
    assert result["resultType"] == "complete" and "io.modelcontextprotocol/serverInfo" in result["_meta"]
    meta = result["structuredContent"]["meta"]
    assert meta["dev.example/x"] == 1
    assert ("io.modelcontextprotocol/protocolVersion" in meta) is script.modern
    if script.modern:
        assert meta["io.modelcontextprotocol/clientInfo"] == {"name": "modern-host", "version": "3"}
    assert [h.get("X-Psbx-Client") for p, h in script.seen if p == "/mcp"][-1] == "modern-host/3"


def test_a_modern_host_cancels_by_notification(script, modern_host):
    gone = threading.Event()
    script.on_tool["sandbox_exec"] = lambda call: (call.stream(), call.comment(), call.gone() and gone.set())
    modern_host.send({"jsonrpc": "2.0", "id": "x", "method": "tools/call",
                      "params": {"name": "sandbox_exec", "arguments": {"id": "b"}, "_meta": META}})
    assert script.wait(lambda: script.calls)
    time.sleep(0.1)
    modern_host.notify("notifications/cancelled", {"requestId": "x"})
    assert gone.wait(5)
    assert modern(modern_host, "server/discover", 9)["result"] and not [m for m in modern_host.messages if m.get("id") == "x"]


def test_subscriptions_are_told_what_they_asked_for(script, tmp_path):
    with StdioMcp([binary()], env=script.env(HOME=str(tmp_path), PSBX_ADAPTER_TOOLS_CHECK_MS="200")) as one:
        for request_id, wanted in (("s", {"toolsListChanged": True, "promptsListChanged": True}), (7, {})):
            one.send({"jsonrpc": "2.0", "id": request_id, "method": "subscriptions/listen", "params": {"notifications": wanted, "_meta": META}})
        key = "io.modelcontextprotocol/subscriptionId"
        acks = [one.wait(lambda m, i=i: m.get("method") == "notifications/subscriptions/acknowledged" and m["params"]["_meta"][key] == i, 5)
                for i in ("s", 7)]
        assert [a["params"]["notifications"] for a in acks] == [{"toolsListChanged": True}, {}]
        modern(one, "tools/list", 1)
        script.tools = script.tools[:2]
        changed = one.wait(lambda m: m.get("method") == "notifications/tools/list_changed", 5)
        assert changed["params"]["_meta"] == {key: "s"}
        one.notify("notifications/cancelled", {"requestId": "s"})
        script.tools = script.tools[:1]
        time.sleep(0.8)
        assert len([m for m in one.messages if m.get("method") == "notifications/tools/list_changed"]) == 1
        assert one.close() == 0
        assert [m for m in one.messages if m.get("id") == 7][0]["result"] == {"resultType": "complete", "_meta": {key: 7}}


@pytest.mark.parametrize("first", [None, "modern"])
def test_a_server_of_the_newer_era_alone(script, adapter, first):
    script.modern = True
    ended = threading.Event()
    one = adapter(**({"PSBX_ADAPTER_ERA": first} if first else {}))

    def act(call):
        assert call.params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        call.stream()
        call.progress(1)
        if call.args.get("wait"):
            if call.gone():
                ended.set()
            return
        call.result({**text_result({"ok": 1}), "resultType": "complete"})
        call.end()

    script.on_tool["sandbox_exec"] = act
    assert "sandbox_exec" in one.tools()
    result = one.tool("sandbox_exec", {"id": "b"}, progress="p")
    assert result.data == {"ok": 1} and result.progress
    one.send({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "sandbox_exec", "arguments": {"id": "b", "wait": True}}})
    assert script.wait(lambda: len(script.calls) == 2)
    one.notify("notifications/cancelled", {"requestId": "x"})
    assert ended.wait(5)
    methods = [m.get("method") for m in script.messages]
    assert "notifications/cancelled" not in methods and "notifications/initialized" not in methods
    assert methods.count("initialize") == (0 if first else 1)


def test_a_name_that_no_header_can_carry(script, adapter):
    script.modern = True
    one = adapter()
    script.on_tool["wörk ing"] = lambda call: call.json(text_result({}))
    with pytest.raises(McpError):
        one.tool("wörk ing")  # the scripted server compares without decoding
    names = [h.get("Mcp-Name") for p, h in script.seen if h.get("Mcp-Method") == "tools/call"]
    assert names[0] == "=?base64?d8O2cmsgaW5n?="


def test_a_server_that_changes_its_era(script, adapter):
    script.sessions = True
    script.on_tool["sandbox_stop"] = lambda call: call.json(text_result({"modern": script.modern}))
    one = adapter()
    for era in (False, True, False):
        script.modern = era
        assert one.tool("sandbox_stop", {"id": "b"}).data == {"modern": era}
    assert len(script.calls) == 3
