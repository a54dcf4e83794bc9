"""What holds for every tool: its description, its annotations, and that each result keeps to the outputSchema that was listed."""

import json

import pytest
from mcpclient import McpError

# readOnly, destructive, idempotent, openWorld: as the tools really behave
HINTS = {
    "sandbox_start": (False, False, False, False), "sandbox_list": (True, False, True, False), "sandbox_status": (False, False, True, False),
    "sandbox_exec": (False, True, False, True), "sandbox_procs": (False, True, False, False), "sandbox_get": (True, False, True, False),
    "sandbox_stop": (False, True, False, False), "sandbox_sync": (False, True, True, False), "sandbox_pull": (False, True, True, False),
    "sandbox_secrets": (False, False, True, False), "sandbox_wire": (False, False, True, False),
    "sandbox_shot": (False, False, False, False),
}
TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "array": list, "null": type(None)}


def fits(value, schema, path="result"):
    """Complaints of a JSON Schema, of the parts that the tools use."""
    types = schema.get("type")
    types = [types] if isinstance(types, str) else types
    if types and not any(isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name in ("integer", "number")) for name in types):
        return [f"{path}: {value!r} is no {'/'.join(types)}"]
    found = []
    if isinstance(value, dict):
        found += [f"{path}.{name} is missing" for name in schema.get("required", ()) if name not in value]
        for name, member in value.items():
            if name in schema.get("properties", {}):
                found += fits(member, schema["properties"][name], f"{path}.{name}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{path}.{name} is not in the schema")
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for n, member in enumerate(value):
            found += fits(member, schema["items"], f"{path}[{n}]")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value!r} is none of {schema['enum']}")
    return found


@pytest.fixture(scope="module")
def tools(server):
    return server.client().tools()


def test_every_tool_is_listed(tools, client):
    assert set(HINTS) <= set(tools)
    for tool in tools.values():
        assert len(tool["description"].encode()) < 2048 and tool["title"]
        assert tool["inputSchema"]["type"] == "object" and tool["outputSchema"]["type"] == "object"
        assert tool["inputSchema"].get("additionalProperties") is False
        for name, argument in tool["inputSchema"]["properties"].items():
            assert argument["description"], f"{tool['name']}.{name}"
    assert len(client.server["instructions"].encode()) < 2048


@pytest.mark.parametrize("name", sorted(HINTS))
def test_annotations(tools, name):
    hints = tools[name]["annotations"]
    assert tuple(hints[f"{hint}Hint"] for hint in ("readOnly", "destructive", "idempotent", "openWorld")) == HINTS[name]


def test_results_keep_to_their_schema(tools, client):
    box = client.start(size="small", services=[{"name": "db", "port": 5432}])
    calls = [
        ("sandbox_start", {"goal": "a second one", "size": "small"}),
        ("sandbox_exec", {"id": box, "cmd": "seq 30000; seq 30000 >&2; exit 3", "note": "x"}),
        ("sandbox_exec", {"id": box, "cmd": "sleep 30", "note": "x", "timeoutSec": 1}),
        ("sandbox_exec", {"id": box, "cmd": "sleep 900", "note": "x", "background": True, "execId": "bg"}),
        ("sandbox_procs", {"id": box, "action": "list", "all": True}), ("sandbox_procs", {"id": box, "action": "wait", "bgId": "bg", "timeoutSec": 1}),
        ("sandbox_procs", {"id": box, "action": "input", "bgId": "bg", "stdin": "x"}), ("sandbox_procs", {"id": box, "action": "stop", "bgId": "bg"}),
        ("sandbox_procs", {"id": box, "action": "wait", "bgId": "bg", "tail": 5}), ("sandbox_get", {"id": box, "path": "."}),
        ("sandbox_get", {"id": box, "paths": [".", "missing"]}), ("sandbox_wire", {"id": box, "service": "web", "port": 80, "targetPort": 3000}),
        ("sandbox_status", {"id": box}), ("sandbox_list", {"all": True}),
        ("sandbox_shot", {"id": box}), ("sandbox_shot", {"id": box, "record": "start"}), ("sandbox_shot", {"id": box, "record": "stop"}),
        ("sandbox_secrets", {}), ("sandbox_secrets", {"id": box}), ("sandbox_stop", {"id": box}),
    ]
    for name, arguments in calls:
        result = client.tool(name, arguments)
        assert not result.is_error, (name, result.text)
        assert result.raw["structuredContent"] == json.loads(result.content[0]["text"]), name
        assert not fits(result.data, tools[name]["outputSchema"]), name
        if name == "sandbox_start":
            client.stop(result["id"])


def test_reading_tools_change_nothing(client, box):
    client.exec(box, "echo x > x")
    before = client.tool("sandbox_list", {}).data
    for name, arguments in (("sandbox_list", {}), ("sandbox_list", {"all": True})):
        client.tool(name, arguments)
    assert client.tool("sandbox_list", {}).data == before


@pytest.mark.parametrize("name, arguments", [
    ("sandbox_sync", {"id": "x", "localPath": "/tmp", "dest": "d"}), ("sandbox_pull", {"id": "x", "path": "p"}), ("sandbox_sync", {}), ("sandbox_pull", {})])
def test_adapter_tools_explain_themselves(client, name, arguments):
    result = client.tool(name, arguments)
    assert result.is_error
    for words in (name, "parallelsandbox-mcp", "claude mcp add", "nothing was done"):
        assert words in result.text
    assert client.key not in result.text


def test_unknown_tool(client):
    with pytest.raises(McpError) as error:
        client.tool("sandbox_nothing", {})
    assert error.value.code == -32602 and "sandbox_nothing" in str(error.value)


def test_a_closed_network_is_told_in_words(client, box):
    result = client.exec(box, "python3 -c \"import socket; socket.create_connection(('10.1.2.3', 80), 5)\"; code=$?; "
                              "echo 'tried 10.1.2.3' >&2; exit $code")
    assert result["exitCode"] != 0
    assert any("10.1.2.3" in line for line in result["denied"]), result
    result = client.exec(box, "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 9), 5)\"")
    assert result["exitCode"] != 0 and "denied" not in result.data, "a port nobody listens on is no denial"
