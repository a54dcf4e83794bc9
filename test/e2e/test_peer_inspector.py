"""The MCP Inspector's command line, over HTTP and over our adapter's stdio."""

import json

import pytest
from instance import programs


@pytest.fixture
def inspect(server, peers, tmp_path):
    script = peers.modules("inspector") / ".bin" / "mcp-inspector"

    def run(transport, *arguments, expect=0):
        if transport == "http":
            target = [server.url + "/mcp", "--header", f"Authorization: Bearer {server.key()}"]
            tail = []
        else:
            target = [part for name, value in server.adapter_env().items() for part in ("-e", f"{name}={value}")]
            tail = ["--", programs() / "parallelsandbox-mcp"]
        done = peers.run([script, "--cli", *target, *arguments, "--format", "json", *tail], HOME=str(tmp_path))
        assert done.returncode == expect, f"{done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    return run


def payload(output):
    """The JSON that the Inspector printed: its result may stand inside an envelope of its own."""
    value = json.loads(output)
    return value.get("result", value)


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_lists_tools(inspect, transport):
    names = [tool["name"] for tool in payload(inspect(transport, "--method", "tools/list"))["tools"]]
    assert {"sandbox_start", "sandbox_exec", "sandbox_sync"} <= set(names)


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_schemas_are_portable(inspect, transport):
    inspect(transport, "--strict", "--method", "tools/list")


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_calls_tools(inspect, transport):
    def call(name, **arguments):
        answer = payload(inspect(transport, "--method", "tools/call", "--tool-name", name, "--tool-args-json",
                                 json.dumps(arguments)))
        assert not answer.get("isError"), answer
        return answer["structuredContent"]

    box = call("sandbox_start", goal="the Inspector looks around")["id"]
    ran = call("sandbox_exec", id=box, cmd="id -u; echo seen", note="look around")
    assert ran["exitCode"] == 0 and ran["stdout"] == "0\nseen\n"
    assert box in [row["id"] for row in call("sandbox_list")["boxes"]]
    call("sandbox_stop", id=box)


def test_an_unknown_tool_is_told(inspect):
    inspect("http", "--method", "tools/call", "--tool-name", "sandbox_nonsense", expect=5)
