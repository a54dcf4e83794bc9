"""Our adapter signs in to our server, with a stand-in for the person and the browser."""

import json
import time
import urllib.parse
import urllib.request

import pytest
from instance import programs
from mcpclient import StdioMcp
from oauthclient import people

CONNECT = "parallelsandbox_connect"


@pytest.fixture(scope="module")
def person(server):
    return people(server)


@pytest.fixture
def adapter(server, tmp_path):
    made = []

    def start(**env):
        made.append(StdioMcp([str(programs() / "parallelsandbox-mcp")], env={
            "PARALLELSANDBOX_MCP_URL": server.url + "/mcp", "PARALLELSANDBOX_AUTH_DIR": str(tmp_path / "auth"), "HOME": str(tmp_path),
            "PARALLELSANDBOX_NO_BROWSER": "1", "PSBX_TOOL_TIMEOUT_SEC": "0", **env}))
        made[-1].initialize("host", "1")
        return made[-1]

    yield start
    for one in made:
        one.kill()
        assert not one.stray


def allow(browser, link):
    """What a person does with the link; the last page."""
    page = browser.get(link)
    assert page.status == 200, page.body
    page = browser.submit(page, None, action="/authorize", button=("decision", "allow"))
    assert page.status == 303, page.body
    assert page.location.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(page.location, timeout=20) as answer:
        return answer.read().decode()


def sign_in(person, one):
    link = one.tool(CONNECT).data["link"]
    assert urllib.parse.urlsplit(link).path == "/authorize"
    assert "is connected" in allow(person, link)
    one.wait(lambda m: m.get("method") == "notifications/tools/list_changed", 10)


def test_sign_in_call_sync_refresh_and_a_restart(server, person, adapter, repository, tmp_path):
    one = adapter()
    assert list(one.tools()) == [CONNECT]
    sign_in(person, one)
    assert {"sandbox_start", "sandbox_sync", "sandbox_list"} <= set(one.tools())
    box = one.tool("sandbox_start", {"goal": "the adapter's sign-in"}).data["id"]
    assert one.tool("sandbox_sync", {"id": box, "localPath": str(repository), "dest": "repo"}).data["ok"]
    assert "README" in one.tool("sandbox_exec", {"id": box, "cmd": "ls /work/repo", "note": "look"}).data["stdout"]
    file = next((tmp_path / "auth").glob("oauth-*.json"))
    before = json.loads(file.read_text())
    before["tokens"]["expiresAt"] = int(time.time() * 1000) - 1
    file.write_text(json.dumps(before))
    two = adapter()
    assert [row["id"] for row in two.tool("sandbox_list").data["boxes"]] == [box]
    after = json.loads(file.read_text())
    assert after["tokens"]["access"] != before["tokens"]["access"] and after["tokens"]["refresh"] != before["tokens"]["refresh"]
    server.stop()
    server.start()
    for adapter_again in (one, two):
        assert adapter_again.tool("sandbox_list").data["boxes"]
    for _ in range(2):
        one.tool("sandbox_stop", {"id": box})


def test_a_revoked_sign_in_asks_again(server, person, adapter, tmp_path):
    one = adapter()
    sign_in(person, one)
    tokens = json.loads(next((tmp_path / "auth").glob("oauth-*.json")).read_text())
    body = urllib.parse.urlencode({"token": tokens["tokens"]["refresh"], "client_id": tokens["client"]["id"]}).encode()
    with urllib.request.urlopen(server.url + "/revoke", data=body, timeout=10) as answer:
        assert answer.status == 200
    result = one.tool("sandbox_list")
    assert result.is_error and CONNECT in result.text
    assert list(one.tools()) == [CONNECT]
    sign_in(person, one)
    assert one.tool("sandbox_list").data["boxes"] == []
