"""The adapter's sign-in, against an authorization server that does what the test says: one test per rule."""

import fcntl
import hashlib
import json
import socket
import stat
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from adapter_scripted import binary
from mcpclient import McpError, StdioMcp
from scripted_oauth import ScriptedOAuth
from scripted_server import text_result

CONNECT = "parallelsandbox_connect"
BROWSER = """#!/bin/sh
echo "$1" >> "$BROWSER_LOG"
[ -z "$BROWSER_ONLY_LOGS" ] || exit 0
exec curl -sS -L -H "Accept-Language: ${BROWSER_LANGUAGE:-en}" -w '\\nHTTP %{http_code}\\n' "$1" >> "$BROWSER_PAGE" 2>&1
"""


@pytest.fixture
def script(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    with ScriptedOAuth(work) as server:
        server.on_tool["sandbox_list"] = lambda call: call.json(text_result({"boxes": []}))
        yield server


class Place:
    """Where an adapter keeps its tokens, and the browser it opens."""

    def __init__(self, folder, script):
        self.script = script
        self.auth = folder / "auth"
        self.log, self.page = folder / "browser.log", folder / "page"
        self.browser = folder / "browser"
        self.browser.write_text(BROWSER)
        self.browser.chmod(0o755)
        self.home = folder

    @property
    def file(self):
        digest = hashlib.sha256((self.script.url + "/mcp").encode()).hexdigest()[:32]
        return self.auth / f"oauth-{digest}.json"

    def read(self):
        return json.loads(self.file.read_text())

    def change(self, **tokens):
        content = self.read()
        content["tokens"].update(tokens)
        beside = self.file.with_name("changed")
        beside.write_text(json.dumps(content))
        beside.replace(self.file)

    def links(self):
        return self.log.read_text().split() if self.log.exists() else []

    def env(self, **more):
        return self.script.env(**{
            "HOME": str(self.home), "PARALLELSANDBOX_AUTH_DIR": str(self.auth), "BROWSER": str(self.browser),
            "BROWSER_LOG": str(self.log), "BROWSER_PAGE": str(self.page), "PSBX_ADAPTER_NOT_SENT_DELAY_MS": "100",
            "PSBX_ADAPTER_UNAVAILABLE_FIRST_MS": "100", **more})


@pytest.fixture
def place(script, tmp_path):
    return Place(tmp_path, script)


@pytest.fixture
def adapter(place):
    made = []

    def make(**env):
        one = StdioMcp([binary()], env=place.env(**env))
        made.append(one)
        one.initialize("probe", "7.1")
        return one

    yield make
    for one in made:
        one.kill()
        assert not one.stray, one.stray


def changed(one):
    return [m for m in one.messages if m.get("method") == "notifications/tools/list_changed"]


def open_page(link, **headers):
    request = urllib.request.Request(link, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def query_of(link):
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(link).query))


# --- the whole way ----------------------------------------------------------------------------------------
def test_from_nothing_to_a_call(script, place, adapter):
    one = adapter()
    assert not script.seen and not place.auth.exists()  # starting leaves no trace
    assert list(one.tools()) == [CONNECT]
    answer = one.tool(CONNECT)
    assert answer.data["connected"] is True
    assert len(changed(one)) == 1
    assert "sandbox_exec" in one.tools() and CONNECT not in one.tools()
    assert one.tool("sandbox_list").data == {"boxes": []}
    asked = script.authorizations[0]
    assert asked["response_type"] == "code" and asked["code_challenge_method"] == "S256" and len(asked["code_challenge"]) == 43
    assert asked["resource"] == script.url + "/mcp" and len(asked["state"]) >= 32
    assert asked["redirect_uri"].startswith("http://127.0.0.1:") and asked["redirect_uri"].endswith("/callback")
    assert script.token_requests[0]["resource"] == script.url + "/mcp"
    told = script.registrations[0]
    assert told["application_type"] == "native" and told["token_endpoint_auth_method"] == "none"
    assert set(told["grant_types"]) == {"authorization_code", "refresh_token"}
    assert one.close() == 0


def test_the_file_is_for_its_owner_only(script, place, adapter):
    adapter().tool(CONNECT)
    assert stat.S_IMODE(place.auth.stat().st_mode) == 0o700
    assert stat.S_IMODE(place.file.stat().st_mode) == 0o600
    assert place.read()["tokens"]["access"] in script.access


def test_a_second_adapter_needs_no_sign_in(script, place, adapter):
    adapter().tool(CONNECT)
    two = adapter()
    assert "sandbox_list" in two.tools()
    assert two.tool("sandbox_list").data == {"boxes": []}
    assert len(script.authorizations) == 1


def test_one_that_waits_notices_the_sign_in_of_another(place, adapter):
    waiting = adapter()
    assert list(waiting.tools()) == [CONNECT]
    adapter().tool(CONNECT)
    waiting.wait(lambda m: m.get("method") == "notifications/tools/list_changed", 10)
    assert "sandbox_list" in waiting.tools()


def test_a_key_skips_it_all(script, adapter):
    script.access["psbx_key"] = ""
    one = adapter(PARALLELSANDBOX_API_KEY="psbx_key")
    assert CONNECT not in one.tools()
    assert one.tool("sandbox_list").data == {"boxes": []}
    assert not script.authorizations


def test_a_server_that_asks_for_nothing(script, adapter):
    script.refusal = lambda *_: None
    one = adapter()
    assert list(one.tools()) == [CONNECT]
    assert one.tool(CONNECT).data["connected"] is True
    assert one.tool("sandbox_list").data == {"boxes": []} and not script.authorizations


def test_calls_without_a_sign_in_say_what_to_do(script, adapter):
    one = adapter()
    for tool in ("sandbox_list", "sandbox_exec", "sandbox_sync"):
        result = one.tool(tool, {"id": "b", "localPath": "/", "dest": "x"})
        assert result.is_error and CONNECT in result.text and "Nothing ran" in result.text
    assert not script.calls and not script.rest
    with pytest.raises(McpError) as told:
        one.tool("no_such_tool")
    assert told.value.code == -32602


# --- discovery --------------------------------------------------------------------------------------------
def test_without_a_hint_the_well_known_places_are_tried(script, adapter):
    script.prm_hint = False
    assert adapter().tool(CONNECT).data["connected"]
    script.prm_hint = True


def test_metadata_at_the_root_and_openid(script, adapter):
    script.prm_hint = False
    script.routes["/.well-known/oauth-protected-resource"] = script.routes.pop("/.well-known/oauth-protected-resource/mcp")
    script.routes["/.well-known/openid-configuration"] = script.routes.pop("/.well-known/oauth-authorization-server")
    assert adapter().tool(CONNECT).data["connected"]


def test_issuer_with_a_path(script, adapter):
    script.prm = {"authorization_servers": [script.url + "/tenant"]}
    script.metadata = {"issuer": script.url + "/tenant"}
    script.iss = script.url + "/tenant"
    script.routes["/.well-known/oauth-authorization-server/tenant"] = script.routes.pop("/.well-known/oauth-authorization-server")
    assert adapter().tool(CONNECT).data["connected"]


def test_servers_of_2025_03_26(script, adapter):
    script.prm_hint, script.iss = False, "none"
    for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"):
        del script.routes[path]
    assert adapter().tool(CONNECT).data["connected"]


@pytest.mark.parametrize("prm, metadata, reason", [
    ({"resource": "https://evil.example.com/mcp"}, {}, "another resource"),
    ({}, {"issuer": "https://evil.example.com"}, "another issuer"),
    ({}, {"code_challenge_methods_supported": None}, "PKCE"),
    ({}, {"code_challenge_methods_supported": ["plain"]}, "PKCE"),
    ({}, {"token_endpoint": "http://example.com/token"}, "neither https nor on this machine"),
    ({"authorization_servers": ["http://example.com"]}, {}, "neither https nor on this machine"),
    ({}, {"registration_endpoint": None}, "PARALLELSANDBOX_OAUTH_CLIENT_ID"),
])
def test_what_is_refused_before_a_browser_opens(script, place, adapter, prm, metadata, reason):
    script.prm, script.metadata = prm, metadata
    result = adapter().tool(CONNECT)
    assert result.is_error and reason in result.text, result.text
    assert not place.links() and not script.token_requests


def test_a_client_that_is_known_by_name(script, adapter):
    script.metadata = {"registration_endpoint": None, "token_endpoint_auth_methods_supported": ["client_secret_basic"]}
    one = adapter(PARALLELSANDBOX_OAUTH_CLIENT_ID="mine", PARALLELSANDBOX_OAUTH_CLIENT_SECRET="s3cret:%")
    assert one.tool(CONNECT).data["connected"]
    assert script.authorizations[0]["client_id"] == "mine"
    assert script.token_requests[0]["Authorization"] == "Basic bWluZTpzM2NyZXQlM0ElMjU="


def test_a_metadata_document_where_the_server_reads_them(script, adapter, place):
    document = "https://example.com/client.json"
    adapter(PARALLELSANDBOX_OAUTH_CLIENT_ID=document).tool(CONNECT)
    assert script.authorizations[0]["client_id"] != document  # not advertised: registered
    place.file.unlink()
    script.metadata = {"client_id_metadata_document_supported": True}
    adapter(PARALLELSANDBOX_OAUTH_CLIENT_ID=document).tool(CONNECT)
    assert script.authorizations[1]["client_id"] == document


@pytest.mark.parametrize("challenge, listed, asked", [("a b", ["c"], "a b"), (None, ["c", "d"], "c d"), (None, None, None)])
def test_scope_from_challenge_then_metadata_then_none(script, adapter, challenge, listed, asked):
    script.challenge_scope, script.scopes_supported = challenge, listed
    adapter().tool(CONNECT)
    assert script.authorizations[0].get("scope") == asked


# --- the callback -----------------------------------------------------------------------------------------
@pytest.fixture
def waiting(script, place, adapter):
    """An adapter that waits for the person; the browser only notes the address."""
    one = adapter(BROWSER_ONLY_LOGS="1", PSBX_TOOL_TIMEOUT_SEC="0")
    begun = threading.Thread(target=one.tool, args=(CONNECT,), daemon=True)
    begun.start()
    assert script.wait(lambda: place.links(), 10)
    one.begun = begun
    yield one, query_of(place.links()[0])
    begun.join(10)


def callback(asked, **query):
    return asked["redirect_uri"] + "?" + urllib.parse.urlencode(query)


def test_a_wrong_state_is_refused_and_the_right_one_still_works(script, place, waiting):
    one, asked = waiting
    for query in ({"code": "x", "state": "wrong"}, {"code": "x"}, {"error": "access_denied", "state": asked["state"] + "x"}):
        status, page = open_page(callback(asked, **query))
        assert status == 400 and "does not belong" in page
    assert not script.token_requests
    status, page = open_page(place.links()[0])
    assert status == 200 and "Connected" in page
    one.wait(lambda m: m.get("method") == "notifications/tools/list_changed", 10)


def test_other_paths_hosts_and_methods_are_nothing(waiting):
    _, asked = waiting
    address = urllib.parse.urlsplit(asked["redirect_uri"])
    assert open_page(f"http://{address.netloc}/")[0] == 404
    assert open_page(callback(asked, code="x", state=asked["state"]), Host="evil.example.com")[0] == 404
    request = urllib.request.Request(callback(asked, code="x", state=asked["state"]), method="POST", data=b"")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(request, timeout=5)
    with socket.socket(socket.AF_INET) as other:  # on the loopback address only
        other.settimeout(2)
        assert other.connect_ex(("127.0.0.2", address.port)) != 0


def test_the_page_waits_for_the_exchange(script, place, waiting):
    gate = threading.Event()
    script.on_token = lambda *_: not gate.wait(10)
    got = []
    page = threading.Thread(target=lambda: got.append(open_page(place.links()[0])), daemon=True)
    page.start()
    assert script.wait(lambda: script.token_requests)
    time.sleep(0.3)
    assert not got
    gate.set()
    page.join(10)
    assert got[0][0] == 200


def test_the_page_tells_a_failed_exchange(script, place, waiting):
    def refuse(handler, _form):
        handler.answer_json(400, {"error": "invalid_grant", "error_description": "code-secret"})
        return True

    script.on_token = refuse
    status, page = open_page(place.links()[0])
    assert status == 400 and "did not succeed" in page and "invalid_grant" in page and "code-secret" not in page
    assert not place.file.exists() or "tokens" not in place.read()


@pytest.mark.parametrize("accept, language, word", [
    ("ja,en;q=0.8", "ja", "接続しました"), ("zh-TW,zh;q=0.9,en;q=0.8", "zh-Hant", "已連線"), ("fr, en-US;q=0.3, ja;q=0.2", "en", "Connected"),
    ("de", "en", "Connected"), ("ja;q=0, zh-Hant;q=0.1", "zh-Hant", "已連線")])
def test_the_last_page_speaks_the_browsers_language(place, adapter, accept, language, word):
    assert adapter(BROWSER_LANGUAGE=accept).tool(CONNECT).data["connected"]
    deadline = time.monotonic() + 5
    while "HTTP " not in (place.page.read_text() if place.page.exists() else "") and time.monotonic() < deadline:
        time.sleep(0.05)
    page = place.page.read_text()
    assert word in page and f'lang="{language}"' in page and "HTTP 200" in page


@pytest.mark.parametrize("iss, advertised, well", [("right", True, True), ("none", False, True), ("right", False, True), ("none", True, False),
                                                   ("https://evil.example.com", True, False), ("https://evil.example.com", False, False)])
def test_iss(script, adapter, iss, advertised, well):
    script.iss, script.iss_advertised = iss, advertised
    result = adapter().tool(CONNECT)
    assert result.is_error is not well
    assert bool(script.token_requests) is well


def test_iss_is_compared_as_it_is(script, adapter):
    script.iss = script.url + "/"
    assert adapter().tool(CONNECT).is_error and not script.token_requests


def test_declined_and_tried_again(script, place, adapter):
    def decline(handler, query, _address):
        back = {"error": "access_denied", "state": query["state"], "iss": script.url}
        handler.answer(302, "text/plain", b"", {"Location": query["redirect_uri"] + "?" + urllib.parse.urlencode(back)})
        return True

    script.on_authorize = decline
    one = adapter()
    result = one.tool(CONNECT)
    assert result.is_error and "declined" in result.text
    script.on_authorize = None
    assert one.tool(CONNECT).data["connected"]
    first, second = (query_of(link) for link in place.links())
    assert first["redirect_uri"] == second["redirect_uri"] and first["client_id"] == second["client_id"]
    assert first["state"] != second["state"] and first["code_challenge"] != second["code_challenge"]


def test_nobody_comes_and_it_can_be_tried_again(script, place, adapter):
    one = adapter(BROWSER_ONLY_LOGS="1", PSBX_ADAPTER_SIGN_IN_MS="700")
    result = one.tool(CONNECT)
    assert not result.is_error and result.data["connected"] is False or "within" in result.text
    assert script.wait(lambda: b"nobody signed in" in one.errors, 5)
    one.tool(CONNECT)
    assert len(place.links()) == 2


def test_the_old_port_again_and_another_when_it_is_taken(script, place, adapter):
    adapter().tool(CONNECT)
    port = urllib.parse.urlsplit(script.authorizations[0]["redirect_uri"]).port
    script.end_access()
    place.change(access="x", refresh="gone", expiresAt=1)
    two = adapter()
    assert two.tool("sandbox_list").is_error
    two.tool(CONNECT)
    assert urllib.parse.urlsplit(script.authorizations[1]["redirect_uri"]).port == port
    assert len(script.registrations) == 1
    script.end_access()
    place.change(access="y", refresh="gone", expiresAt=1)
    with socket.create_server(("127.0.0.1", port), reuse_port=False):
        three = adapter()
        assert three.tool("sandbox_list").is_error
        assert three.tool(CONNECT).data["connected"]
    assert urllib.parse.urlsplit(script.authorizations[2]["redirect_uri"]).port != port


def test_no_browser_gives_the_link(script, place, adapter):
    one = adapter(PARALLELSANDBOX_NO_BROWSER="1", PSBX_TOOL_TIMEOUT_SEC="0")
    answer = one.tool(CONNECT, progress="p")
    assert answer.data["connected"] is False and not place.links()
    assert answer.data["link"] in answer.progress[0]["message"]
    assert open_page(answer.data["link"])[0] == 200
    assert one.tool(CONNECT).data["connected"] is True


def test_without_any_browser_the_link_is_given(place, adapter, tmp_path):
    one = adapter(BROWSER=str(tmp_path / "missing"), PATH=str(tmp_path), PSBX_TOOL_TIMEOUT_SEC="0")
    assert one.tool(CONNECT).data["link"].startswith("http://127.0.0.1")


def test_a_cancelled_connect_goes_on_by_itself(script, place, adapter):
    one = adapter(BROWSER_ONLY_LOGS="1")
    one.send({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": CONNECT, "arguments": {}}})
    assert script.wait(lambda: place.links())
    one.notify("notifications/cancelled", {"requestId": "c"})
    assert open_page(place.links()[0])[0] == 200
    one.wait(lambda m: m.get("method") == "notifications/tools/list_changed", 5)
    assert one.tool("sandbox_list").data == {"boxes": []}
    assert not [m for m in one.messages if m.get("id") == "c"]


# --- refreshing -------------------------------------------------------------------------------------------
@pytest.fixture
def signed_in(adapter):
    one = adapter()
    one.tool(CONNECT)
    return one


def test_a_401_refreshes_once_and_repeats_once(script, place, signed_in):
    script.end_access()
    assert signed_in.tool("sandbox_list").data == {"boxes": []}
    assert script.refreshed == 1 and place.read()["tokens"]["access"] in script.access
    assert "refreshing" not in place.read()


def test_a_token_that_is_refused_again_is_given_up(script, signed_in):
    script.refusal = lambda *_: (401, {"error": "no"}, {"WWW-Authenticate": "Bearer"})
    result = signed_in.tool("sandbox_list")
    assert result.is_error and CONNECT in result.text and script.refreshed == 1
    signed_in.wait(lambda m: len(changed(signed_in)) == 2, 5)
    assert list(signed_in.tools()) == [CONNECT]


def test_a_token_about_to_end_is_refreshed_first(script, place, signed_in, adapter):
    place.change(expiresAt=int(time.time() * 1000) + 20_000)
    two = adapter()
    assert two.tool("sandbox_list").data == {"boxes": []}
    assert script.refreshed == 1 and not [m for m in script.messages if m.get("method") == "x"]


def test_an_upload_refreshes_when_under_five_minutes_are_left(script, place, signed_in, adapter, tmp_path):
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a").write_text("1")
    place.change(expiresAt=int(time.time() * 1000) + 200_000)
    two = adapter()
    assert two.tool("sandbox_list").data == {"boxes": []}
    assert script.refreshed == 0
    assert two.tool("sandbox_sync", {"id": "b", "localPath": str(folder), "dest": "x"}).data["ok"]
    assert script.refreshed == 1


def test_a_refused_upload_refreshes_once(script, place, signed_in, tmp_path):
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a").write_text("1")
    script.end_access()
    assert signed_in.tool("sandbox_sync", {"id": "b", "localPath": str(folder), "dest": "x"}).data["ok"]
    assert script.refreshed == 1 and (Path(script.work) / "x" / "a").read_text() == "1"


def test_a_lost_refresh_means_a_new_sign_in_and_never_a_replay(script, place, signed_in):
    script.on_token = lambda handler, form: handler.reset() or True
    script.end_access()
    result = signed_in.tool("sandbox_list")
    assert result.is_error and CONNECT in result.text
    script.on_token = None
    assert signed_in.tool("sandbox_list").is_error
    assert [r["grant_type"] for r in script.token_requests].count("refresh_token") == 1 and script.replayed == 0
    assert "tokens" not in place.read()
    assert signed_in.tool(CONNECT).data["connected"]
    assert signed_in.tool("sandbox_list").data == {"boxes": []}


def test_a_mark_left_by_a_dead_process_is_respected(script, place, signed_in, adapter):
    content = place.read()
    content["refreshing"] = "2026-01-01T00:00:00.000Z"
    place.file.write_text(json.dumps(content))
    script.end_access()
    two = adapter()
    assert two.tool("sandbox_list").is_error and script.refreshed == 0
    assert len(script.token_requests) == 1


@pytest.mark.parametrize("status", [503, 429])
def test_a_refresh_that_was_not_done_is_tried_again(script, place, signed_in, status):
    def later(handler, _form):
        if len(script.token_requests) > 2:
            return False
        handler.answer_json(status, {"error": "slow_down"})
        return True

    script.on_token = later
    script.end_access()
    assert signed_in.tool("sandbox_list").data == {"boxes": []}
    assert script.refreshed == 1 and script.replayed == 0


def test_a_refused_refresh_ends_the_sign_in(script, place, signed_in):
    script.refresh.clear()
    script.end_access()
    result = signed_in.tool("sandbox_list")
    assert result.is_error and "invalid_grant" in result.text and CONNECT in result.text
    assert "tokens" not in place.read() and place.read()["client"]["id"]


def test_a_forgotten_client_registers_anew(script, place, signed_in):
    def unknown(handler, _form):
        handler.answer_json(401, {"error": "invalid_client"})
        return True

    script.on_token = unknown
    script.end_access()
    assert signed_in.tool("sandbox_list").is_error
    script.on_token = None
    assert signed_in.tool(CONNECT).data["connected"] and len(script.registrations) == 2


def test_another_authorization_server_gets_nothing_of_the_old_one(script, place, signed_in, tmp_path):
    with ScriptedOAuth(tmp_path) as other:
        script.prm = {"authorization_servers": [other.url]}
        other.prm = {"resource": script.url + "/mcp"}
        script.access, script.refresh = other.access, {}
        assert signed_in.tool("sandbox_list").is_error
        assert signed_in.tool(CONNECT).data["connected"]
        assert len(other.registrations) == 1 and other.authorizations[0]["client_id"] != script.authorizations[0]["client_id"]
        assert place.read()["issuer"] == other.url
        assert signed_in.tool("sandbox_list").data == {"boxes": []}


def test_a_file_that_does_not_parse_is_set_aside(script, place, signed_in, adapter):
    broken = place.file.read_text() + "}"
    place.file.write_text(broken)
    two = adapter()
    assert list(two.tools()) == [CONNECT]
    assert two.tool(CONNECT).data["connected"]
    aside = list(place.auth.glob("*.broken-*"))
    assert len(aside) == 1 and aside[0].read_text() == broken


def test_the_lock_is_never_taken_from_a_live_owner(script, place, signed_in):
    with open(str(place.file).removesuffix("json") + "lock", "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        script.end_access()
        got = []
        call = threading.Thread(target=lambda: got.append(signed_in.tool("sandbox_list")), daemon=True)
        call.start()
        time.sleep(1.5)
        assert not got and script.refreshed == 0
        fcntl.flock(lock, fcntl.LOCK_UN)
    call.join(10)
    assert got[0].data == {"boxes": []} and script.refreshed == 1


def test_an_adapter_that_is_killed_loses_no_refresh(script, place, signed_in, adapter):
    gate = threading.Event()
    script.on_token = lambda *_: not gate.wait(10)
    script.end_access()
    signed_in.send({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "sandbox_list", "arguments": {}}})
    assert script.wait(lambda: len(script.token_requests) == 2)
    signed_in.kill()
    gate.set()
    two = adapter()
    assert two.tool("sandbox_list").data == {"boxes": []}
    assert script.refreshed == 1 and script.replayed == 0 and len(script.authorizations) == 1


def test_calls_at_the_same_time_refresh_once(script, signed_in):
    script.end_access()
    for n in range(8):
        signed_in.send({"jsonrpc": "2.0", "id": f"n{n}", "method": "tools/call", "params": {"name": "sandbox_list", "arguments": {}}})
    for n in range(8):
        answer = signed_in.wait(lambda m, n=n: m.get("id") == f"n{n}", 20)
        assert answer["result"]["structuredContent"] == {"boxes": []}
    assert script.refreshed == 1


# --- more than was granted --------------------------------------------------------------------------------
def test_step_up_asks_for_both_and_repeats_the_call(script, adapter):
    script.challenge_scope = "basic"
    script.required_scope = {"sandbox_list": "write"}
    one = adapter()
    one.tool(CONNECT)
    assert one.tool("sandbox_list").data == {"boxes": []}
    assert set(script.authorizations[1]["scope"].split()) == {"basic", "write"}
    assert len(script.calls) == 1


def test_step_up_is_finite(script, adapter):
    script.challenge_scope = "basic"
    script.required_scope = {"sandbox_list": "write"}
    one = adapter()
    one.tool(CONNECT)
    grant = script.grant
    script.grant = lambda scope, client: grant("basic", client)
    result = one.tool("sandbox_list")
    assert result.is_error and "Nothing ran" in result.text and len(script.authorizations) == 2


# --- secrets ----------------------------------------------------------------------------------------------
def test_secrets_stay_secret(script, place, adapter):
    one = adapter(PSBX_LOG_LEVEL="debug")
    one.tool(CONNECT)
    script.end_access()
    one.tool("sandbox_list")
    command = Path(f"/proc/{one.process.pid}/cmdline").read_bytes()
    tokens = place.read()["tokens"]
    secrets = [tokens["access"], tokens["refresh"], script.token_requests[0]["code"], script.token_requests[0]["code_verifier"]]
    told = bytes(one.errors) + json.dumps(one.messages).encode() + command + place.log.read_bytes()
    for secret in secrets:
        assert secret.encode() not in told


def test_the_browser_does_not_get_our_secrets(script, place, adapter):
    place.browser.write_text('#!/bin/sh\nenv > "$BROWSER_PAGE"\n')
    one = adapter(PARALLELSANDBOX_OAUTH_CLIENT_SECRET="s3cret", PSBX_TOOL_TIMEOUT_SEC="0")
    one.tool(CONNECT)
    assert script.wait(lambda: place.page.exists() and place.page.read_text())
    assert "s3cret" not in place.page.read_text()
